"""Where a gateway has its core: in its own process, or in the box's first gateway."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from workers import log
from workers.net.waiting import wait_until
from workers.protocol.control import FromMember, GatewayConfig, GatewayStats, Overload
from workers.protocol.frames import Hello
from workers.protocol.fronts import FrontStats
from workers.protocol.gateways import CoreStatus
from workers.protocol.specs import ApplicationStats
from workers.trust.endpoints import Endpoint

from .config_file import ConfigFile
from .core_link import CoreLink
from .front import Front
from .metrics import GatewayMetrics
from .options import GatewayOptions, member_socket
from .remote_front import Fronts
from .rollout import Rollout

logger = log.get("gateway.core")

#: share and number of a second's rows that must be refused for an overload
OVERLOAD_SHARE = 0.05
OVERLOAD_ROWS = 3
#: seconds after which one of several gateways accepts connections, even if it cannot serve yet
PREPARE_S = 1.0
#: seconds that the box's other gateways have for saying that they stop, too; their queries are waited for all the same
NOTICE_S = 0.5


class CoreHere:
    """The core in this process, its file and reports, and the fronts that connect.

    Args:
        send: takes messages for the control plane and never blocks.
    """

    def __init__(self, options: GatewayOptions, metrics: GatewayMetrics, send: Callable[[FromMember], None]) -> None:
        self._options = options
        name = options.member or options.name
        self.core = self.rollout = Rollout(name, options.queue_rows, options.adopt_limit_s, metrics, options.tls_client)
        self._fronts = Fronts(self.rollout.core, self.rollout.status)
        self._send = send
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
        if self.rollout.executors.leads:
            # Queries go to the core that leads.
            for burst in self.rollout.bursts.check(now):
                logger.info("burst", application=burst.application, rate=round(burst.rate, 2), plan=burst.plan_version)
                self._send(burst)
        self._fronts.report()

    def second(self, stats: dict[str, ApplicationStats], chosen: Rollout | CoreLink) -> None:
        """Report the second of this front, and of those whose queries the core decided on."""
        parts = self._fronts.take_stats()
        if isinstance(chosen, CoreLink):
            # Demand counts where it is decided on.
            chosen.report(FrontStats(stats))
        else:
            parts.append(stats)
        self._report(merged(parts), chosen.status())
        self.rollout.keep_executors()

    def _report(self, stats: dict[str, ApplicationStats], status: CoreStatus) -> None:
        """Report the second that ends now, and applications of which much was refused.

        Args:
            status: of the core that the gateway's queries go to.
        """
        core, config = self.rollout.core, self.rollout.config
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

    async def drain(self, grace_s: float) -> None:
        """Decide for those of the box's other gateways that stop, too, until they have."""
        if self._options.local_gateways is None:
            return
        end = time.monotonic() + grace_s
        await wait_until(lambda: self._fronts.all_leaving, min(NOTICE_S, grace_s))
        # Of one whose event loop stalls, nothing is known yet. Later queries do not count: others may go on.
        flights = self._fronts.local_flights
        await wait_until(
            lambda: not self._fronts.leaving and all(flight.answer is None for flight in flights),
            end - time.monotonic(),
        )

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


def merged(parts: Iterable[dict[str, ApplicationStats]]) -> dict[str, ApplicationStats]:
    """Merge the statistics of several fronts; latencies are means weighted by answers."""
    sums: dict[str, ApplicationStats] = {}
    for part in parts:
        for name, stats in part.items():
            sums[name] = _add(sums[name], stats) if name in sums else stats
    return sums


def _add(one: ApplicationStats, other: ApplicationStats) -> ApplicationStats:
    more, answered = other.in_time + other.late, one.in_time + one.late
    weight = more / (answered + more) if answered + more else 0.0
    total = ApplicationStats(
        p50_ms=one.p50_ms + weight * (other.p50_ms - one.p50_ms),
        p95_ms=one.p95_ms + weight * (other.p95_ms - one.p95_ms),
        least_accuracy=max(one.least_accuracy, other.least_accuracy),
        slowest=max((one.slowest, other.slowest), key=lambda sample: sample.latency_ms if sample is not None else -1.0),
        refused=one.refused or other.refused,
    )
    for name in ApplicationStats.__struct_fields__:
        first, second = getattr(one, name), getattr(other, name)
        if isinstance(first, dict):
            setattr(total, name, {key: first.get(key, 0) + second.get(key, 0) for key in first.keys() | second.keys()})
        elif name not in ("p50_ms", "p95_ms", "least_accuracy", "slowest", "refused"):
            setattr(total, name, first + second)
    return total
