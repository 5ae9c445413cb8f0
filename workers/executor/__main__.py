"""``python -m workers.executor --device FILE_OR_JSON``: one device's process.

Settings come from the environment (``NEREUS_QUEUE_ROWS``, ``NEREUS_PROFILE_SHARE``, ``NEREUS_LOG_LEVEL``). The process
outlives its node daemon, which takes it over when it is back; without daemon and gateways it ends by itself. SIGTERM:
new batches are refused, waiting ones finished within two seconds, the rest refused.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import os
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import uvloop

from workers import identity, log
from workers.confinement.limits import lower_priority
from workers.protocol import run_record
from workers.protocol.frame_limits import QueryLimits
from workers.protocol.specs import DeviceInfo
from workers.settings import Settings, SettingsError

from .process import (
    End,
    bind,
    bind_cores,
    confine,
    limit_memory,
    listening_socket,
    memory_limit,
    note_faults,
)

if TYPE_CHECKING:
    from .peers import Peers

#: seconds in which waiting queries are finished on shutdown
GRACE_S = 2.0
#: how long an executor stays without node daemon and gateways: a supervisor's longest pause and an upgrade fit in
#: several times; after that its memory and its GPU serve nobody
ORPHANED_S = 300.0
#: niceness of the imports, so that a restart takes no time from what serves on these cores
_IMPORT_NICE = 10


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="workers.executor", description="Serve one device.")
    parser.add_argument("--device", required=True, help="a DeviceInfo as JSON, or a file that holds it")
    parser.add_argument("--models", type=Path, help="the folder of the models (default: cache in NEREUS_HOME)")
    given = parser.parse_args(arguments)
    try:
        settings = Settings.from_environ()
        device = read_device(given.device)
        log.configure(f"executor {device.id}", settings.log_level)
    except (SettingsError, ValueError) as error:
        sys.exit(f"executor: {error}")
    try:
        end = note_faults(device.endpoint)
    except OSError as error:
        sys.exit(f"executor: endpoint {device.endpoint!r}: {error}")
    try:
        # Before any thread and any model: all that this process gives up.
        bind_cores(device)
        limit_memory(device)
        listener = listening_socket(device.endpoint)
        remote = bind(device.address) if device.address else None
        record = run_record.create(run_record.record_path(device.endpoint))
        confine(device, settings, given.models or settings.model_cache)
    except (ValueError, OSError) as error:
        end(1, f"executor: {error}")
    uvloop.run(serve(device, settings, record, (listener, remote), end))


def read_device(text: str) -> DeviceInfo:
    try:
        raw = text if text.lstrip().startswith("{") else Path(text).read_text()
        return msgspec.json.decode(raw, type=DeviceInfo)
    except OSError as error:
        raise ValueError(f"--device {text}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise ValueError(f"--device: {error}") from None


async def serve(
    info: DeviceInfo,
    settings: Settings,
    record: memoryview,
    listeners: tuple[socket.socket, socket.socket | None],
    end: End,
) -> None:
    """Serve ``info``'s device until SIGTERM or SIGINT.

    Args:
        listeners: for this box, and for others if it is to listen to them.
        end: of :func:`.process.note_faults`.
    """
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1, "imports") as thread:
        await loop.run_in_executor(thread, _import_parts)
    from .device import DeviceService
    from .measuring import Measuring
    from .peers import Peers
    from .runtime import LoadError, Runtime
    from .server import PeerServer
    from .watchdog import Watchdog

    own = identity.of(info)
    # Freeze start-up objects out of the garbage collector: walking through them would delay queries by 30 ms.
    gc.collect()
    gc.freeze()
    logger = log.get("executor")
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        runtime = Runtime(info, Watchdog(record, end, memory_limit(info)))
    except (LoadError, ValueError, OSError) as error:
        end(1, f"executor: {error}")
    device = DeviceService(info, runtime, Peers(), settings.queue_rows, settings.profile_share)
    measuring = Measuring(device)
    server = PeerServer(device, measuring, own)
    running = loop.create_task(device.device_loop.run())
    ticking = loop.create_task(device.tick())
    here, remote = listeners
    listening = await loop.create_unix_server(server.connection, sock=here, backlog=128)
    if remote is not None:
        server.listen_to_cores(remote, QueryLimits(settings.max_request_bytes, settings.max_json_bytes).answering)
    logger.info("executor_started", endpoint=info.endpoint, cores=list(info.cores), kind=info.kind)
    await _until_stopped(stop, device.peers, (running, ticking), end)
    # Its file stays: a confined executor cannot remove it, and the next one takes its place.
    listening.close()
    await measuring.stop()
    await device.residency.stop()
    await device.stop(GRACE_S)
    await asyncio.wait([running], timeout=GRACE_S)
    ticking.cancel()
    await server.close()
    device.close()
    logger.info("executor_stopped")
    # A model run that does not end must not keep the process: its thread cannot be interrupted.
    sys.stderr.flush()
    os._exit(0)


async def _until_stopped(stop: asyncio.Event, peers: Peers, loops: tuple[asyncio.Task, ...], end: End) -> None:
    """Wait for ``stop``, or until orphaned; end the process if a loop has ended."""
    stopping = asyncio.ensure_future(stop.wait())
    orphaned = asyncio.ensure_future(peers.orphaned(ORPHANED_S))
    # A loop ends by itself only through a fault; without it the process must not go on looking alive.
    await asyncio.wait([*loops, stopping, orphaned], return_when=asyncio.FIRST_COMPLETED)
    logger = log.get("executor")
    for loop in loops:
        if loop.done():
            logger.error("device_loop_ended", error=repr(loop.exception()))
            end(1, f"its loop ended: {loop.exception()!r}")
    if orphaned.done():
        logger.warning("executor_orphaned", reason=f"no node daemon and no gateway for {ORPHANED_S:g} s")
    orphaned.cancel()


def _import_parts() -> None:
    """Import what takes long, in a thread: a process could not take its niceness back.

    Late, too, since libraries start threads, which must find the process bound to its cores already.
    """
    lower_priority(_IMPORT_NICE)
    for part in ("device", "measuring", "runtime", "server", "watchdog"):
        importlib.import_module(f"workers.executor.{part}")


if __name__ == "__main__":
    main()
