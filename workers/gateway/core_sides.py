"""Where a gateway has its core: in its own process, or in the box's first gateway."""

from __future__ import annotations

from collections.abc import Callable

from workers.net.waiting import wait_until
from workers.protocol.control import FromMember, GatewayConfig
from workers.protocol.frames import Hello
from workers.protocol.fronts import FrontStats
from workers.protocol.specs import ApplicationStats
from workers.transport.endpoints import Endpoint

from .config_file import ConfigFile
from .core_link import CoreLink
from .cores import OwnCore
from .front import Front
from .metrics import GatewayMetrics
from .options import GatewayOptions, member_socket
from .remote_front import Fronts
from .reports import Reports, merged
from .rollout import Rollout

#: seconds after which one of several gateways accepts connections, even if it cannot serve yet
PREPARE_S = 1.0
#: seconds that the box's other gateways have for saying that they stop, too
NOTICE_S = 0.3


class CoreHere:
    """The core in this process, its file and reports, and the fronts that connect.

    Args:
        send: takes messages for the control plane and never blocks.
    """

    def __init__(
        self,
        options: GatewayOptions,
        front: Front,
        metrics: GatewayMetrics,
        send: Callable[[FromMember], None],
    ) -> None:
        self._options = options
        name = options.member or options.name
        self.rollout = Rollout(name, options.queue_rows, options.adopt_limit_s, metrics, options.tls_client)
        self.core = OwnCore(self.rollout, front)
        self._fronts = Fronts(self.rollout.core, self.rollout.status)
        self._reports = Reports(self.rollout, send)
        self._file = ConfigFile(options.file)

    async def start(self) -> GatewayConfig | None:
        """Use the configuration in the file, and listen to fronts; the configuration."""
        options = self._options
        if options.core_address is not None:
            self._fronts.listen_to_members(member_socket(options.core_address), options.query_limits.answering)
        config = self._file.load()
        if config is not None:
            self.rollout.configure(config)
            self._fronts.configure(config)
        if options.local_gateways is not None:
            await wait_until(lambda: config is not None and not self.rollout.status().cold, PREPARE_S)
            await self._fronts.listen(options.local_gateways.core)
        return config

    def watch(self, choose: Callable[[], object]) -> None:
        """Have ``choose`` called when the core begins or ceases to lead."""

        def lead_changed() -> None:
            choose()
            self._fronts.report()

        self.rollout.on_lead = lead_changed

    def configure(self, config: GatewayConfig) -> bool:
        """Replace the configuration, also in the file; False where it is the present one."""
        if config == self.rollout.config:
            return False
        self.rollout.configure(config)
        self._file.store(config)
        self._fronts.configure(config)
        self._fronts.report()
        return True

    async def certified(self, pem: bytes) -> None:
        await self._fronts.certified(pem)

    def slot(self, now: float) -> None:
        self.rollout.tick(now)
        self._reports.slot(now)
        self._fronts.report()

    def second(self, stats: dict[str, ApplicationStats], chosen: OwnCore | CoreLink) -> None:
        """Report the second of this front, and of those whose queries the core decided on."""
        parts = self._fronts.take_stats()
        if isinstance(chosen, CoreLink):
            # Demand counts where it is decided on.
            chosen.report(FrontStats(stats))
        else:
            parts.append(stats)
        self._reports.second(merged(parts), chosen.status())
        self.rollout.keep_executors()

    async def drain(self, grace_s: float) -> None:
        """Decide for those of the box's other gateways that stop, too, until they have."""
        if self._options.local_gateways is not None:
            await wait_until(lambda: self._fronts.leaving, min(NOTICE_S, grace_s))
            await wait_until(lambda: not self._fronts.leaving, grace_s - NOTICE_S)

    async def close(self) -> None:
        """Hand over to the next core, if there is one, and finish writing the file."""
        await self.rollout.retire(self._fronts.report)
        # Fronts first: their queries wait for the next core; without devices this one would refuse them.
        await self._fronts.close()
        await self.rollout.close()
        await self._file.close()


class CoreBeside:
    """The core in the box's first gateway, from which the configuration comes, too."""

    def __init__(self, options: GatewayOptions, front: Front, adopt: Callable[[GatewayConfig], None]) -> None:
        self._file = ConfigFile(options.file)
        endpoint = Endpoint(f"unix:{options.local_gateways.core}")
        self.core = CoreLink(endpoint, Hello("front", options.name), front, adopt)

    async def start(self) -> GatewayConfig | None:
        self.core.start()
        return self._file.load()

    def watch(self, choose: Callable[[], object]) -> None:
        self.core.on_changed = choose

    def slot(self, now: float) -> None:
        """Nothing: the first gateway does it."""

    def second(self, stats: dict[str, ApplicationStats], chosen: CoreLink) -> None:
        chosen.report(FrontStats(stats))

    async def drain(self, grace_s: float) -> None:
        """Decides for nobody; its queries need the first gateway's core meanwhile."""
        self.core.leave()

    async def close(self) -> None:
        await self.core.close()
