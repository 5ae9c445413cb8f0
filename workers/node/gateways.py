"""Fetching the metrics of this box's gateways, each of which is asked on a socket of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ..protocol.frames import Frame, FrameConnection, Hello, Metrics, MetricsRequest, connect


async def metrics(socket: Path, node: str, timeout_s: float = 1.5) -> str | None:
    """A gateway's Prometheus text, or None when it does not answer in time."""
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def heard(_: FrameConnection, message: Frame, body: memoryview) -> None:
        if isinstance(message, Metrics) and not told.done():
            told.set_result(message.text)

    def closed(_: FrameConnection, error: Exception | None) -> None:
        if not told.done():
            told.set_exception(error or ConnectionResetError("closed by the gateway"))

    connection: FrameConnection | None = None
    try:
        async with asyncio.timeout(timeout_s):
            connection = await connect(f"unix:{socket}", lambda: FrameConnection(Metrics, heard, closed))
            connection.send(Hello("node", node))
            connection.send(MetricsRequest())
            return await told
    except Exception:
        # Whatever it is, it is one gateway's: the page says that it is not up.
        return None
    finally:
        if connection is not None:
            connection.close()
