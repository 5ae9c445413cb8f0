"""How long a routing decision takes: ``python -m benchmarks.routing``.

One row for each number of devices and each situation: *in time* (the planned device answers within the budget) and
*corrected* (no device does, so that every one is looked at: the most that a decision can cost). Microseconds a
decision, median and 99th percentile over single decisions with sent and done between them.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time

from workers.batching.latency import LatencyModel
from workers.gateway.routing.least_completion import Router

DEVICES = (2, 10, 40)
PROFILE = [(1, 0.005), (8, 0.02), (32, 0.06)]


def router_for(devices: int) -> Router:
    router = Router()
    router.set_routes({"app": [(f"device-{i}", 1 + i % 3) for i in range(devices)]})
    latency = LatencyModel(PROFILE)
    for i in range(devices):
        router.service(f"device-{i}", "app", latency, 32)
        router.up(f"device-{i}")
    return router


def decision_times_us(devices: int, budget_s: float, decisions: int) -> list[float]:
    """Microseconds of each of ``decisions`` picks, with about four queries outstanding a device."""
    router = router_for(devices)
    clock = time.perf_counter_ns
    under_way: list[str] = []
    times = []
    gc.collect()
    for i in range(decisions):
        now = i * 1e-4
        began = clock()
        device = router.pick("app", now, budget_s)
        times.append((clock() - began) / 1000)
        router.sent(device, "app", 1, now)
        under_way.append(device)
        if len(under_way) > 4 * devices:
            router.done(under_way.pop(0), "app", 1, now, True, 0.0, 0.02, 8)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--decisions", type=int, default=20_000, help="picks a row (default 20000)")
    arguments = parser.parse_args()
    print(f"{'devices':>8}  {'situation':<10} {'median us':>10} {'p99 us':>8}")
    for devices in DEVICES:
        for situation, budget_s in (("in time", 10.0), ("corrected", 0.0)):
            times = decision_times_us(devices, budget_s, arguments.decisions)
            p99 = statistics.quantiles(times, n=100)[-1]
            print(f"{devices:>8}  {situation:<10} {statistics.median(times):>10.2f} {p99:>8.2f}")


if __name__ == "__main__":
    main()
