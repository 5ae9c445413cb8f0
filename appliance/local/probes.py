"""Probes of services, which return None or why a service does not answer properly.

They may also raise OSError. A caller limits a probe's time. Probes leave nothing open when they are cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from workers.protocol import frames
from workers.protocol.frame_connection import FrameConnection, connect
from workers.protocol.gateways import Ping, Pong
from workers.trust import control_plane

Probe = Callable[[], Awaitable[str | None]]


async def ask(probe: Probe, timeout_s: float) -> str | None:
    try:
        return await asyncio.wait_for(probe(), timeout_s)
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except (OSError, ValueError, asyncio.IncompleteReadError) as error:
        return str(error) or type(error).__name__


def http(url: str, holding: bytes = b"") -> Probe:
    """A probe by GET for a status of 200 and bytes in the body."""
    context = control_plane.unverified() if url.startswith("https:") else None

    async def probe() -> str | None:
        status, body = await control_plane.get(url, context)
        if status is None:
            return "no HTTP answer"
        if status == 200 and holding in body:
            return None
        return f"HTTP {status}: {body[:300].decode(errors='replace')}"

    return probe


def redis(path: Path) -> Probe:
    """PING; a Redis that still loads its snapshot is not ready."""

    async def probe() -> str | None:
        reader, writer = await asyncio.open_unix_connection(str(path))
        try:
            writer.write(b"PING\r\n")
            answer = await reader.readline()
        finally:
            writer.close()
        return None if answer.startswith(b"+PONG") else answer[:300].decode(errors="replace").strip() or "no answer"

    return probe


def gateway(path: Path) -> Probe:
    """A probe that pings a gateway at its own socket, over one connection."""
    connection: FrameConnection | None = None
    answered: asyncio.Future[None]

    def pong(*_: object) -> None:
        if not answered.done():
            answered.set_result(None)

    def closed(_connection: object, error: Exception | None) -> None:
        if not answered.done():
            answered.set_exception(error or ConnectionResetError("the connection was closed"))

    async def probe() -> str | None:
        nonlocal connection, answered
        answered = asyncio.get_running_loop().create_future()
        try:
            if connection is None or not connection.open:
                connection = await connect(f"unix:{path}", lambda: FrameConnection(Pong, pong, closed))
                connection.send(frames.Hello(role="supervisor", name="supervisor"))
            connection.send(Ping())
            await answered
        except BaseException:
            if connection is not None:
                connection.close()
            connection = None
            raise
        return None

    return probe


def heartbeat(path: Path) -> Probe:
    """Whether a file was touched since the last call, whatever the clock shows."""
    seen = 0

    async def probe() -> str | None:
        nonlocal seen
        last, seen = seen, path.stat().st_mtime_ns
        return None if seen != last else "no heartbeat"

    return probe
