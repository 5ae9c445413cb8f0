"""How long a routing decision takes: ``python -m benchmarks.routing``.

One row for each number of devices and each situation. *In time*: the device whose turn it is answers within the budget.
*No device in time*: none does, so that the first of all is looked for with every query. *After reports*: the same, with
an executor's report of other gateways' queries before every query. *Two excluded*: the same, where two devices were
tried already. *Half allowed*: the same, for a variant that every other device has; *as a set*: made for each query.
Microseconds a decision, median and 99th percentile over single decisions with sent and done between them.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Collection
from dataclasses import dataclass

from workers.batching.latency import LatencyModel
from workers.dispatch.routing.least_completion import Router

DEVICES = (2, 10, 40, 160, 1000)
PROFILE = [(1, 0.005), (8, 0.02), (32, 0.06)]


@dataclass(frozen=True)
class Situation:
    """``budget_s``: of each query; what else there is to every query (see above)."""

    budget_s: float = 0.0
    reports: bool = False
    exclude: bool = False
    allowed: type[frozenset] | type[set] | None = None


SITUATIONS = {
    "in time": Situation(10.0),
    "no device in time": Situation(),
    "after reports": Situation(reports=True),
    "two excluded": Situation(exclude=True),
    "half allowed": Situation(allowed=frozenset),
    "half allowed, as a set": Situation(allowed=set),
}


def router_for(devices: int) -> Router:
    router = Router()
    router.set_routes({"app": [(f"device-{i}", 1 + i % 3) for i in range(devices)]})
    latency = LatencyModel(PROFILE)
    for i in range(devices):
        router.service(f"device-{i}", "app", latency, 32)
        router.up(f"device-{i}")
    return router


def decision_times_us(devices: int, situation: Situation, decisions: int) -> list[float]:
    """Microseconds of each of ``decisions`` picks, with about four queries outstanding a device."""
    router = router_for(devices)
    clock = time.perf_counter_ns
    under_way: list[str] = []
    times = []
    half = frozenset(f"device-{i}" for i in range(0, devices, 2))
    exclude: Collection[str] = ()
    gc.collect()
    for i in range(decisions):
        now = i * 1e-4
        if situation.reports:
            router.state(f"device-{i * 7 % devices}", {"app": i % 60}, 0.01, False, now)
        if situation.exclude:
            exclude = set(under_way[-2:])
        allowed = half if situation.allowed is frozenset else set(half) if situation.allowed else None
        began = clock()
        device = router.pick("app", now, situation.budget_s, 1, exclude, allowed)
        times.append((clock() - began) / 1000)
        if device is None:
            continue
        router.sent(device, "app", 1, now)
        under_way.append(device)
        if len(under_way) > 4 * devices:
            router.done(under_way.pop(0), "app", 1, now, True, 0.0, 0.02, 8)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--decisions", type=int, default=5_000, help="picks a row (default 5000)")
    arguments = parser.parse_args()
    print(f"{'devices':>8}  {'situation':<22} {'median us':>10} {'p99 us':>8}")
    for devices in DEVICES:
        for name, situation in SITUATIONS.items():
            times = decision_times_us(devices, situation, arguments.decisions)
            p99 = statistics.quantiles(times, n=100)[-1]
            print(f"{devices:>8}  {name:<22} {statistics.median(times):>10.2f} {p99:>8.2f}")


if __name__ == "__main__":
    main()
