"""Reports of a core: bursts at once, statistics and overloads each second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from workers import log
from workers.protocol.control import FromMember, GatewayStats, Overload
from workers.protocol.gateways import CoreStatus
from workers.protocol.specs import ApplicationStats

from .rollout import Rollout

logger = log.get("gateway.reports")

#: share and number of a second's rows that must be refused for an overload
OVERLOAD_SHARE = 0.05
OVERLOAD_ROWS = 3


class Reports:
    def __init__(self, rollout: Rollout, send: Callable[[FromMember], None]) -> None:
        self._rollout = rollout
        self._send = send

    def slot(self, now: float) -> None:
        """Report demand outside of the plan's bands; called at the end of each slot."""
        if not self._rollout.executors.leads:
            return  # queries go to the core that leads
        for burst in self._rollout.bursts.check(now):
            logger.info("burst", application=burst.application, rate=round(burst.rate, 2), plan=burst.plan_version)
            self._send(burst)

    def second(self, stats: dict[str, ApplicationStats], status: CoreStatus) -> None:
        """Report the second that ends now.

        Args:
            stats: by application.
            status: of the core that the gateway's queries go to.
        """
        config = self._rollout.config
        stats = {**{name: ApplicationStats() for name in self._rollout.core.catalog.applications}, **stats}
        self._send(
            GatewayStats(
                applications=stats,
                ready=config is not None and not status.cold,
                serving=tuple(name for name in stats if status.routes.get(name)),
                plan_version=config.plan.version if config is not None else 0,
                config_hash=config.hash if config is not None else "",
                reach=self._rollout.executors.reach(time.monotonic()),
            )
        )
        # Where more is refused than chance explains, a new plan may help.
        for name, refused in self._rollout.core.take_refused().items():
            arrived = stats[name].arrived_rows if name in stats else 0
            if refused >= max(OVERLOAD_ROWS, OVERLOAD_SHARE * arrived):
                self._send(Overload(device="", application=name, arrived=max(arrived, refused), refused=refused))


def merged(parts: Iterable[dict[str, ApplicationStats]]) -> dict[str, ApplicationStats]:
    """Merge the statistics of several fronts; latencies are means weighted by answers."""
    found: dict[str, ApplicationStats] = {}
    for part in parts:
        for name, stats in part.items():
            found[name] = _add(found[name], stats) if name in found else stats
    return found


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
