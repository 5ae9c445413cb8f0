"""Access to the metrics of this box's gateways.

Each gateway is asked on a socket of its own.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from ..protocol.frame_connection import FrameConnection, connect
from ..protocol.frames import Frame, Hello, Metrics, MetricsRequest


async def metrics(socket: Path, node: str, timeout_s: float = 1.5) -> str | None:
    """A gateway's Prometheus text, or None when it does not answer in time."""
    page: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def received(_: FrameConnection, message: Frame, body: memoryview) -> None:
        if isinstance(message, Metrics) and not page.done():
            page.set_result(message.text)

    def closed(_: FrameConnection, error: Exception | None) -> None:
        if not page.done():
            page.set_exception(error or ConnectionResetError("closed by the gateway"))

    connection: FrameConnection | None = None
    try:
        async with asyncio.timeout(timeout_s):
            connection = await connect(f"unix:{socket}", lambda: FrameConnection(Metrics, received, closed))
            connection.send(Hello("node", node))
            connection.send(MetricsRequest())
            return await page
    except Exception:
        # Any error concerns one gateway alone: the page shows it as not up.
        return None
    finally:
        if connection is not None:
            connection.close()
