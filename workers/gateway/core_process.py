"""A core with what the control plane wants of it; and one in a process of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from workers import log
from workers.protocol.control import FromMember, GatewayConfig

from .bursts import BurstDetector
from .config_file import ConfigFile
from .metrics import GatewayMetrics
from .options import GatewayOptions, member_socket
from .remote_front import Fronts
from .reports import Reports, merged
from .rollout import Rollout

logger = log.get("gateway")

#: seconds between the end of a slot of arrivals and its tick, since an event loop's timers count milliseconds
AFTER_S = 0.002
#: seconds after which one of several fronts accepts connections, and their core fronts, even if it cannot serve yet;
#: and seconds between two checks whether it can
PREPARE_S, LOOK_EVERY_S = 1.0, 0.01


class LocalCore:
    """A core with its configuration file and its reports.

    With a configuration in its file, it serves at once.

    Args:
        send: takes messages for the control plane and never blocks.
    """

    def __init__(self, options: GatewayOptions, metrics: GatewayMetrics, send: Callable[[FromMember], None]) -> None:
        name = options.member or options.name
        self.rollout = Rollout(name, options.queue_rows, options.adopt_limit_s, metrics, options.tls_client)
        self.reports = Reports(self.rollout, send)
        self._file = ConfigFile(options.file)

    def load(self) -> GatewayConfig | None:
        """Use the configuration in the file, if there is one."""
        config = self._file.load()
        if config is not None:
            self.rollout.configure(config)
        return config

    def configure(self, config: GatewayConfig) -> bool:
        """Replace the configuration, also in the file; False where it is the present one."""
        if config == self.rollout.config:
            return False
        self.rollout.configure(config)
        self._file.store(config)
        return True

    async def close(self) -> None:
        """Close connections to executors, and finish writing the file."""
        await self.rollout.close()
        await self._file.close()


class CoreProcess:
    """A core in a process of its own, with the fronts that connect to it.

    Args:
        path: where it listens for fronts.
    """

    def __init__(self, options: GatewayOptions, path: Path, send: Callable[[FromMember], None]) -> None:
        self._metrics = GatewayMetrics(f"{options.name}-core")
        self._core = LocalCore(options, self._metrics, send)
        self._path, self._address = path, options.core_address
        self._limits = options.query_limits.answering
        self._fronts = Fronts(self._core.rollout.core, self._core.rollout.status, self._page)
        self._core.rollout.on_lead = self._fronts.report
        self._ticker: asyncio.Task | None = None

    async def start(self) -> None:
        """Load the last configuration, connect to executors, listen for fronts."""
        config = self._core.load()
        if config is not None:
            self._fronts.configure(config)
            await prepared(lambda: not self._core.rollout.status().cold)
        if self._address is not None:
            self._fronts.listen_to_members(member_socket(self._address), self._limits)
        await self._fronts.listen(self._path)
        self._ticker = asyncio.create_task(tick(self._slot, self._second), name="core-tick")
        logger.info("core_started")

    def configure(self, config: GatewayConfig) -> None:
        """Replace the configuration of core and fronts."""
        if self._core.configure(config):
            self._fronts.configure(config)
            self._fronts.report()

    async def certified(self, pem: bytes) -> None:
        """See :meth:`FrontProcess.certified`."""
        await self._fronts.certified(pem)

    async def stop(self) -> int:
        """Hand over to the next core, if there is one, and close all.

        Fronts end their queries themselves.

        Returns:
            How many queries were in flight at the beginning.
        """
        left = len(self._core.rollout.core.flights)
        if self._ticker is not None:
            self._ticker.cancel()
        self._second()
        await self._core.rollout.retire(self._fronts.report)
        # Fronts first: their queries wait for the next core; without devices this one would refuse them.
        await self._fronts.close()
        await self._core.close()
        logger.info("core_stopped", cut_off=left)
        return left

    def _slot(self, now: float) -> None:
        self._core.rollout.tick(now)
        self._core.reports.slot(now)
        self._fronts.report()

    def _second(self) -> None:
        self._core.reports.second(merged(self._fronts.take_stats()), self._core.rollout.status())
        self._core.rollout.keep_executors()

    def _page(self) -> bytes:
        status = self._core.rollout.status()
        self._metrics.refresh(status, status.adopted is not None and not status.cold, core_here=True)
        return self._metrics.text()


async def prepared(ready: Callable[[], bool], within_s: float = PREPARE_S) -> None:
    """Wait until this process can serve.

    Until then, clients reach other fronts, or wait.

    Args:
        within_s: the most seconds to wait.
    """
    end = time.monotonic() + within_s
    while not ready() and time.monotonic() < end:
        await asyncio.sleep(LOOK_EVERY_S)


async def tick(slot: Callable[[float], None], each_second: Callable[[], None]) -> None:
    """Call ``slot`` after each slot of arrivals, and ``each_second`` once a second.

    Args:
        slot: called with the time.
    """
    second = time.monotonic() + 1.0
    while True:
        await asyncio.sleep(BurstDetector.slot_ends_in(time.monotonic()) + AFTER_S)
        try:
            now = time.monotonic()
            slot(now)
            if now >= second:
                second = max(second + 1.0, now)
                each_second()
        except Exception:
            logger.exception("tick_failed")
