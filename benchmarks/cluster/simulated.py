"""The undisturbed cluster against its simulation.

Both get the same queries at the same times, and the simulation has the profiles and run times of the cluster.

As ``benchmarks fidelity`` does it for one box, with devices of several types. The simulator's network has one delay for
all devices, the mean of what queries took beside their wait and their run.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from appliance.demo.manifest import DemoApplication
from benchmarks import runtimes
from benchmarks.fidelity import BATCHES, Live, Row, Served, Simulated, scenario
from scheduler.simulation import SimulationResults, simulate
from scheduler.simulation.arrivals import Trace
from scheduler.simulation.scenario import ControlSettings

from .load import Asked

#: Seconds at the beginning that do not count: the simulator's first plan is for other demand than the cluster's.
SETTLE_S = 20.0


def compare(
    queries: Sequence[Asked],
    wanted: Sequence[DemoApplication],
    served: Served,
    ran: Mapping[str, runtimes.RunTimes],
    period_s: float,
) -> dict[str, str]:
    """Figures of both, and by how many points they differ.

    Args:
        queries: in the order in which they were sent; all of them are simulated.
        served: profiles and devices; run times and the way are taken from the queries.
        ran: run times by variant meanwhile.

    Raises:
        ValueError: nothing was answered.
    """
    if not any(one.first.end.end == "ok" for one in queries):
        raise ValueError("queries: nothing was answered")
    answered = [one for one in queries if one.first.end.end == "ok"]
    way_s = statistics.fmean(one.first.took_s - one.first.end.inside_ms / 1000 for one in answered)
    slowdown, ratios = _slowdowns(answered, served, ran)
    began = queries[0].first.sent.at
    live = _live([one for one in queries if one.first.sent.at >= began + SETTLE_S], wanted, slowdown, ratios)
    names = tuple(one.name for one in wanted)
    sent = [one.first.sent for one in queries]
    trace = Trace(names, tuple(one.at - began for one in sent), tuple(names.index(one.application) for one in sent))
    measured = dataclasses.replace(served, ratios=ratios, way_s=max(0.0, way_s))
    control = ControlSettings(period_s=period_s, initial_qps=len(sent) / trace.times[-1] / len(names))
    same = dataclasses.replace(scenario(wanted, trace, measured, 1), control=control)
    row = Row(0.0, live, _simulated(simulate(same, "nereus")), way_s * 1000)
    return _cells(row)


def _live(
    queries: Sequence[Asked], wanted: Sequence[DemoApplication], slowdown: float, ratios: dict[str, tuple[float, ...]]
) -> Live:
    """Counted strictly, at the client's first attempt."""
    slo_s = {one.name: one.slo_ms / 1000 for one in wanted}
    answered = [one.first for one in queries if one.first.end.end == "ok"]
    in_time = [one for one in answered if one.took_s <= slo_s[one.sent.application]]
    return Live(
        queries=len(queries),
        violation_ratio=1 - len(in_time) / len(queries),
        accuracy=statistics.fmean(one.end.accuracy for one in in_time) if in_time else None,
        median_ms=statistics.median(one.took_s for one in answered) * 1000 if answered else None,
        slowdown=slowdown,
        ratios=ratios,
        load_average=os.getloadavg()[0],
    )


def _simulated(results: SimulationResults) -> Simulated:
    settled = [second for second in results.per_second if second.second >= SETTLE_S]
    arrived, in_time = sum(one.arrived for one in settled), sum(one.in_time for one in settled)
    accuracy = sum((one.effective_accuracy or 0.0) * one.in_time for one in settled)
    return Simulated(
        1 - in_time / arrived, accuracy / in_time if in_time else None, results.summary["median_latency_ms"]
    )


def _slowdowns(
    answered: Sequence[Asked], served: Served, ran: Mapping[str, runtimes.RunTimes]
) -> tuple[float, dict[str, tuple[float, ...]]]:
    """Return run times over profiles: their mean, and their distributions.

    Returns:
        The mean of all, and the distribution by variant id, of all types together.
    """
    types = dict(served.devices)
    ends = [(one.first.sent.application, one.first.end) for one in answered]
    # Each of the n answers of a batch of n rows tells of it.
    batches = Counter((application, end.variant, types[end.device], end.rows) for application, end in ends)
    pairs: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for (application, variant, kind, rows), count in batches.items():
        seconds = served.profiles[kind][application, variant].seconds(rows)
        pairs.setdefault((application, variant), []).append((seconds, count / rows))
    together: dict[float, float] = {}
    for _, variant in pairs:
        for bound, count in ran[variant].counts.items():
            together[bound] = together.get(bound, 0.0) + count
    took = runtimes.RunTimes(together, sum(ran[variant].sum_s for _, variant in pairs))
    usual = runtimes.ratios([pair for of in pairs.values() for pair in of], took)
    found = {}
    for application, variant in next(iter(served.profiles.values())):
        mine = pairs.get((application, variant), [])
        enough = sum(count for _, count in mine) >= BATCHES
        found[f"{application}/{variant}"] = runtimes.ratios(mine, ran[variant]) if enough else usual
    return statistics.fmean(usual), found


def _cells(row: Row) -> dict[str, str]:
    live, simulated = row.live, row.simulated
    violations = f"{live.violation_ratio:.2%} and {simulated.violation_ratio:.2%}"
    return {
        "violations, live and simulated": violations,
        "violations apart": f"{row.violations_apart:.2f} points",
        "accuracy, live and simulated": f"{live.accuracy or 0:.2f} and {simulated.accuracy or 0:.2f}",
        "accuracy apart": f"{row.accuracy_apart:.2f} points",
        "median latency, live and simulated": f"{live.median_ms or 0:.0f} and {simulated.median_ms or 0:.0f} ms",
        "run time over profile": f"{live.slowdown:.2f}",
        "way": f"{row.way_ms:.1f} ms",
    }
