"""``python -m workers.executor --device FILE_OR_JSON``: one device's process.

Settings come from the environment (``NEREUS_QUEUE_ROWS``, ``NEREUS_PROFILE_SHARE``, ``NEREUS_LOG_LEVEL``). The process
dies with its parent. SIGTERM: new batches are refused, waiting ones finished within two seconds, the rest refused.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import signal
import sys
from pathlib import Path

import msgspec
import uvloop

from workers import log
from workers.protocol import run_record
from workers.protocol.specs import DeviceInfo
from workers.settings import Settings, SettingsError

from .process import bind_cores, die_with_parent, listening_socket

GRACE_S = 2.0


def main(arguments: list[str] | None = None) -> None:
    """Parse, bind this process to its device, serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="workers.executor", description="Serve one device.")
    parser.add_argument("--device", required=True, help="a DeviceInfo as JSON, or a file that holds it")
    parser.add_argument("--parent", type=int, help="pid of the parent (default: the parent at the start)")
    given = parser.parse_args(arguments)
    die_with_parent(given.parent if given.parent is not None else os.getppid())
    try:
        settings = Settings.from_environ()
        device = read_device(given.device)
        log.configure(f"executor {device.id}", settings.log_level)
        bind_cores(device)
    except (SettingsError, ValueError) as error:
        sys.exit(f"executor: {error}")
    if device.kind == "cuda":
        # NVML numbers GPUs by bus id; CUDA by default by speed.
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    uvloop.run(serve(device, settings))


def read_device(text: str) -> DeviceInfo:
    """The device from JSON, or from the file of that name.

    Raises:
        ValueError: saying what is wrong with it.
    """
    try:
        raw = text if text.lstrip().startswith("{") else Path(text).read_text()
        device = msgspec.json.decode(raw, type=DeviceInfo)
    except OSError as error:
        raise ValueError(f"--device {text}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise ValueError(f"--device: {error}") from None
    if device.kind not in ("cpu", "cuda"):
        raise ValueError(f"--device: kind must be cpu or cuda, not {device.kind!r}")
    return device


async def serve(info: DeviceInfo, settings: Settings) -> None:
    """Serve ``info``'s device until SIGTERM or SIGINT."""
    # Imported late: their libraries start threads, which must find the process bound to its cores already.
    from .device import DeviceService
    from .measuring import Measuring
    from .peers import Peers
    from .runtime import LoadError, Runtime
    from .server import PeerServer
    from .watchdog import Watchdog

    # Freeze start-up objects out of the garbage collector: walking through them would delay queries by 30 ms.
    gc.collect()
    gc.freeze()
    logger = log.get("executor")
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        runtime = Runtime(info, Watchdog(run_record.create(run_record.record_path(info.endpoint))))
        listener = listening_socket(info.endpoint)
    except (LoadError, ValueError, OSError) as error:
        sys.exit(f"executor: {error}")
    device = DeviceService(info, runtime, Peers(), settings.queue_rows, settings.profile_share)
    measuring = Measuring(device)
    server = PeerServer(device, measuring)
    running = loop.create_task(device.run())
    ticking = loop.create_task(device.tick())
    stopping = loop.create_task(stop.wait())
    listening = await loop.create_unix_server(server.connection, sock=listener)
    logger.info("executor_started", endpoint=info.endpoint, cores=list(info.cores), kind=info.kind)
    # The loop ends by itself only through a fault; without it the process must not go on looking alive.
    await asyncio.wait([running, ticking, stopping], return_when=asyncio.FIRST_COMPLETED)
    for task in (running, ticking):
        if task.done():
            logger.error("device_loop_ended", error=repr(task.exception()))
            os._exit(1)
    listening.close()
    Path(info.endpoint.removeprefix("unix:")).unlink(missing_ok=True)
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


if __name__ == "__main__":
    main()
