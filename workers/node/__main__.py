"""``python -m workers.node``: the node daemon, until SIGTERM or SIGINT.

Exit code 2: settings that cannot be used.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import sys

from .. import descriptors, disk, log
from ..metrics_access import MetricsAccess
from ..settings import Settings, SettingsError
from . import devices, http, redivision
from .daemon import NodeDaemon


def main() -> int:
    try:
        settings = Settings.from_environ()
        settings.make_folders()
        log.configure("node", settings.log_level)
        descriptors.raise_limit()
        layout = redivision.restore(settings)
    except SettingsError as error:
        print("Settings that cannot be used:\n  " + "\n  ".join(error.problems), file=sys.stderr)
        return 2
    devices.log_found(layout.devices)
    try:
        with _alone(settings):
            listener = http.listen(settings.node_http)
            return asyncio.run(_serve(settings, layout, listener))
    except OSError as error:
        log.get("daemon").error("node_failed", reason=error.strerror or str(error))
        return 1


async def _serve(settings: Settings, layout, listener) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    daemon = NodeDaemon(settings, layout)
    stopping = asyncio.create_task(stop.wait())
    parts = [
        asyncio.create_task(daemon.run()),
        asyncio.create_task(http.serve(daemon, listener, MetricsAccess.of(settings))),
    ]
    await asyncio.wait([stopping, *parts], return_when=asyncio.FIRST_COMPLETED)
    code = 0
    if not stop.is_set():
        code = 1
        for part in parts:
            if part.done() and part.exception() is not None:
                log.get("daemon").error("node_failed", exc_info=part.exception())
    for part in (*parts, stopping):
        part.cancel()
    await asyncio.gather(*parts, stopping, return_exceptions=True)
    log.get("daemon").info("node_stopped")
    return code


@contextlib.contextmanager
def _alone(settings: Settings):
    """Hold a lock: two daemons of one name would take each other's executors."""
    path = settings.home / "members" / f"node-{disk.safe_name(settings.node_name)}.lock"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    # Not inheritable, so that an executor which outlives the daemon for a moment does not hold it.
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            message = f"another node daemon named {settings.node_name} runs with NEREUS_HOME={settings.home}"
            raise OSError(error.errno, message) from None
        yield
    finally:
        os.close(handle)


if __name__ == "__main__":
    sys.exit(main())
