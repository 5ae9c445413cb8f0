"""A gateway's own core with what it needs: its file, its fronts elsewhere, and its reports to the control plane."""

from __future__ import annotations

import time
from collections.abc import Callable

from workers import log
from workers.net.waiting import wait_until
from workers.protocol.control import FromMember, GatewayConfig, GatewayStats, Overload
from workers.protocol.gateways import CoreStatus
from workers.protocol.specs import ApplicationStats

from .config_file import ConfigFile
from .options import GatewayOptions, member_socket
from .remote_front import Fronts
from .rollout import Rollout
from .totals import merged

logger = log.get("gateway.core")

#: share and number of a second's rows that must be refused for an overload
OVERLOAD_SHARE = 0.05
OVERLOAD_ROWS = 3
#: seconds after which one of several gateways accepts connections, even if it cannot serve yet
PREPARE_S = 1.0


class CoreHere:
    def __init__(
        self, options: GatewayOptions, rollout: Rollout, file: ConfigFile, send: Callable[[FromMember], None]
    ) -> None:
        self._options = options
        self.rollout = rollout
        self._file = file
        self._send = send
        self.fronts = Fronts(rollout.core, rollout.status)

    async def start(self, config: GatewayConfig | None) -> None:
        settings = self._options.settings
        if settings.core is not None:
            self.fronts.listen_to_members(member_socket(settings.core), self._options.query_limits.answering)
        if config is not None:
            self.rollout.configure(config)
            self.fronts.configure(config)
        if self._options.several:
            await wait_until(lambda: config is not None and not self.rollout.status().cold, PREPARE_S)
            await self.fronts.listen(settings.gateway_core_socket)

    def configure(self, config: GatewayConfig) -> bool:
        """Replace the configuration, also in the file; False where it is the present one."""
        if config == self.rollout.config:
            return False
        self.rollout.configure(config)
        self._file.store(config)
        self.fronts.configure(config)
        self.fronts.report()
        return True

    def slot(self, now: float) -> None:
        if self.rollout.leads:
            # Queries go to the core that leads.
            for burst in self.rollout.bursts.check(now):
                logger.info("burst", application=burst.application, rate=round(burst.rate, 2), plan=burst.plan_version)
                self._send(burst)
        self.fronts.report()

    def second(self, stats: dict[str, ApplicationStats], status: CoreStatus) -> None:
        """Report the second that ends now, and applications of which much was refused.

        Args:
            stats: of this gateway's front, unless another core decides on its queries.
            status: of the core that they go to.
        """
        core, config = self.rollout.core, self.rollout.config
        stats = merged([*self.fronts.take_stats(), stats])
        stats = {**{name: ApplicationStats() for name in core.catalog.applications}, **stats}
        self._send(
            GatewayStats(
                applications=stats,
                ready=config is not None and not status.cold,
                serving=tuple(name for name in stats if status.routes.get(name)),
                plan_version=config.plan.version if config is not None else 0,
                config_hash=config.hash if config is not None else "",
                reach=self.rollout.executors.reach(time.monotonic()),
            )
        )
        # Where more is refused than chance explains, a new plan may help.
        for name, refused in core.take_refused().items():
            arrived = stats[name].arrived_rows if name in stats else 0
            if refused >= max(OVERLOAD_ROWS, OVERLOAD_SHARE * arrived):
                self._send(Overload(device="", application=name, arrived=max(arrived, refused), refused=refused))
        self.rollout.keep_executors()

    async def drain(self, grace_s: float) -> None:
        """Decide for the box's other gateways until they have stopped, too."""
        await wait_until(lambda: not self.fronts.local, grace_s)

    async def close(self) -> None:
        """Hand over to the next core; what is left of the core is closed behind this."""
        await self.rollout.retire(self.fronts.report)
        # Before the core: their queries wait for the next one; without devices this one would refuse them.
        await self.fronts.close()
        await self._file.close()
