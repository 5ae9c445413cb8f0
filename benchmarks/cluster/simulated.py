"""The undisturbed cluster against its simulation: the same queries twice.

The simulation has the profiles and run times of the cluster. Its network has one delay for all devices, the mean of
what queries took beside their wait and their run.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from appliance.demo.manifest import DemoApplication, applications
from benchmarks.faults.checker import Query
from benchmarks.growth import Verdict
from scheduler.simulation import simulate
from scheduler.simulation.arrivals import Trace
from scheduler.simulation.profiles import Model
from scheduler.simulation.scenario import ControlSettings, Scenario
from workers.dispatch.latency import LatencyModel

METRIC = "nereus_executor_run_seconds_sum"
#: declared for the variants from the cheapest on; far apart, so that it shows when others are chosen
ACCURACIES = (80.0, 90.0, 100.0)
#: seconds at the beginning that do not count: the simulator's first plan is for other demand than the cluster's
SETTLE_S = 20.0
#: points by which violations and accuracy may differ
APART = 1.0

#: latency by (application, variant): medians, as profiled
Profiles = Mapping[tuple[str, str], LatencyModel]


def run_s(pages: Iterable[str]) -> float:
    """Seconds that batches ran so far, by the metrics pages of nodes."""
    families = (family for page in pages for family in text_string_to_metric_families(page))
    samples = (sample for family in families for sample in family.samples)
    return sum(sample.value for sample in samples if sample.name == METRIC)


@dataclass(frozen=True)
class Served:
    """The service as it is: name and type of each device, and profiles by device type."""

    devices: tuple[tuple[str, str], ...]
    profiles: Mapping[str, Profiles]

    def rates(self, wanted: Sequence[DemoApplication], utilisation: float) -> dict[str, float]:
        """Queries/s that keep the devices so busy with the best variants alone."""
        made = {}
        for application in wanted:
            best = max(application.variants, key=lambda variant: variant.accuracy)
            alone = [self.profiles[kind][application.name, best.name].seconds(1) for _, kind in self.devices]
            made[application.name] = utilisation / len(wanted) * sum(1 / seconds for seconds in alone)
        return made


def chosen(slo_ms: float) -> tuple[DemoApplication, ...]:
    """The demo's applications with their three cheapest variants, by unique names: executors' metrics tell no more."""
    return tuple(
        dataclasses.replace(
            application,
            slo_ms=slo_ms,
            variants=tuple(
                dataclasses.replace(variant, name=f"{application.name}-{variant.name}", accuracy=accuracy)
                for variant, accuracy in zip(application.variants, ACCURACIES, strict=False)
            ),
        )
        for application in applications()
    )


def compare(
    queries: Sequence[Query],
    wanted: Sequence[DemoApplication],
    served: Served,
    ran_s: float,
    period_s: float,
) -> Verdict:
    """Figures of both; violations and accuracy may differ by a point.

    Args:
        queries: in the order in which they were sent; all of them are simulated.
        ran_s: seconds that batches ran meanwhile.
    """
    answered = [one for one in queries if one.end.end == "ok"]
    way_s = statistics.fmean(one.took_s - one.end.inside_ms / 1000 for one in answered)
    types = dict(served.devices)
    # Each of the n answers of a batch of n rows tells of it.
    profiled = (
        served.profiles[types[one.end.device]][one.sent.application, one.end.variant].seconds(one.end.rows)
        / one.end.rows
        for one in answered
    )
    slowdown = ran_s / sum(profiled)
    sent = [one.sent for one in queries]
    began, names = sent[0].at, tuple(one.name for one in wanted)
    trace = Trace(names, tuple(one.at - began for one in sent), tuple(names.index(one.application) for one in sent))
    control = ControlSettings(period_s=period_s, initial_qps=len(sent) / trace.times[-1] / len(names))
    results = simulate(scenario(wanted, trace, served, slowdown, max(0.0, way_s), control), "nereus")
    settled = [second for second in results.per_second if second.second >= SETTLE_S]
    in_time = sum(one.in_time for one in settled)
    earned = sum((one.effective_accuracy or 0.0) * one.in_time for one in settled)
    simulated = 100 * (1 - in_time / sum(one.arrived for one in settled)), earned / max(in_time, 1)
    slo_s = {one.name: one.slo_ms / 1000 for one in wanted}
    counted = [one for one in queries if one.sent.at >= began + SETTLE_S]
    kept = [one for one in counted if one.end.end == "ok" and one.took_s <= slo_s[one.sent.application]]
    live = 100 * (1 - len(kept) / len(counted)), statistics.fmean(one.end.accuracy for one in kept)
    median_ms = 1000 * statistics.median(one.took_s for one in counted if one.end.end == "ok")
    text = f"live and simulated: violations {live[0]:.2f}% and {simulated[0]:.2f}%, accuracy {live[1]:.2f} and "
    text += f"{simulated[1]:.2f}, median {median_ms:.0f} and {results.summary['median_latency_ms']:.0f} ms; run time "
    text += f"over profile {slowdown:.2f}, way {1000 * way_s:.1f} ms"
    return all(abs(a - b) <= APART for a, b in zip(live, simulated, strict=True)), text


def scenario(
    wanted: Sequence[DemoApplication],
    arrivals: Trace,
    served: Served,
    slowdown: float,
    way_s: float,
    control: ControlSettings,
) -> Scenario:
    """The live run as a scenario for the simulator.

    Args:
        slowdown: run time over profile, of all variants alike.
        way_s: seconds that a query takes beside its wait and its run.
    """
    models = []
    for application in wanted:
        for variant in application.variants:
            # Each batch size has a point of its own: live, batches between two profiled ones are not padded.
            points = {
                kind: tuple((rows, latency.seconds(rows)) for rows in range(1, latency.largest + 1))
                for kind, profiles in served.profiles.items()
                for latency in (profiles[application.name, variant.name],)
            }
            models.append(Model(application.name, variant.name, variant.accuracy, points))
    return Scenario(
        name="cluster",
        models=tuple(models),
        arrivals=arrivals,
        devices=served.devices,
        slo_s={application.name: application.slo_ms / 1000 for application in wanted},
        network_s=way_s / 2,
        run_ratios={f"{model.application}/{model.name}": (slowdown,) for model in models},
        seed=1,
        control=control,
    )
