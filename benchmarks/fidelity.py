"""Live against simulated: the same queries at the same times, answered by a real appliance with two one-core devices
and by the simulator, on profiles and run times measured in the same run with everything up. Violations are counted
strictly at the client.

Gateway, load and executors share the machine's cores with whatever else runs there, so batches take longer than
profiled: the simulator draws from the distribution of what they took, by variant. It is fitted to what the executors
tell after each replay, of all that they ran, and knows nothing of when, on which device or in what order.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvloop

from appliance.demo.manifest import DemoApplication, applications
from appliance.demo.rest import client, expect, pages
from benchmarks import runtimes
from benchmarks.openloop import Client
from scheduler.simulation import simulate
from scheduler.simulation.arrivals import Arrivals, Generator
from scheduler.simulation.profiles import Model
from scheduler.simulation.scenario import Control, Scenario
from tests.running import RunningAppliance, eventually
from workers.batching.latency import LatencyModel
from workers.gateway.menus import AROUND_S

#: of the devices' time, if the most accurate variants answered every query alone
UTILISATIONS = (0.3, 0.6)
REPETITIONS = 3
SECONDS, QUICK_SECONDS = 20.0, 8.0
#: the first replay, of which only run times are looked at
REHEARSAL_S = 6.0
DEVICES = 2
SLO_MS = 200.0
PERIOD_S = 10.0
#: declared for the variants from the cheapest on; far apart, so that it shows when others are chosen
ACCURACIES = (80.0, 90.0, 100.0)
#: variants of which fewer batches ran are taken to be as slow as the others
BATCHES = 20
SEED = 20

#: latency by (application, variant): medians, as profiled
Profiles = Mapping[tuple[str, str], LatencyModel]


@dataclass(frozen=True)
class Live:
    """A replay. ``violation_ratio``: 0 to 1; ``accuracy``: normalised percent, None where nothing was in time;
    ``busy``: share of the devices' time; ``slowdown``: run time of all batches over their profiles' medians;
    ``ratios``: the same by variant id, as a distribution; ``load_average``: of the machine, over the last minute."""

    queries: int
    violation_ratio: float
    accuracy: float | None
    median_ms: float | None
    busy: float
    slowdown: float
    ratios: Mapping[str, tuple[float, ...]]
    load_average: float


@dataclass(frozen=True)
class Simulated:
    """The same queries, simulated."""

    violation_ratio: float
    accuracy: float | None
    median_ms: float | None


@dataclass(frozen=True)
class Row:
    """One repetition. ``way_ms``: what a query costs beside its run."""

    utilisation: float
    live: Live
    simulated: Simulated
    way_ms: float

    @property
    def violations_apart(self) -> float:
        """Points, of all queries."""
        return abs(self.live.violation_ratio - self.simulated.violation_ratio) * 100

    @property
    def accuracy_apart(self) -> float:
        """Points; infinite where only one of the two answered anything in time."""
        live, simulated = self.live.accuracy, self.simulated.accuracy
        if live is None or simulated is None:
            return 0.0 if live is simulated else math.inf
        return abs(live - simulated)


# --- what is served --------------------------------------------------------------------------------------------------


def chosen() -> tuple[DemoApplication, ...]:
    """The demo's applications with their three cheapest variants, and this benchmark's objective and accuracies.
    Variants' names are unique, as executors' metrics tell nothing but these."""
    return tuple(
        dataclasses.replace(
            application,
            slo_ms=SLO_MS,
            variants=tuple(
                dataclasses.replace(variant, name=f"{application.name}-{variant.name}", accuracy=accuracy)
                for variant, accuracy in zip(application.variants, ACCURACIES, strict=False)
            ),
        )
        for application in applications()
    )


def register(base_url: str, token: str, wanted: Sequence[DemoApplication]) -> Profiles:
    """Create the applications, upload their variants, wait until all are profiled, and return the profiles."""
    with client(base_url, token) as rest:
        for application in wanted:
            body = {"name": application.name, "slo_ms": application.slo_ms, "signature": application.signature}
            expect(rest.post("/applications/", json=body), f"registering {application.name}", 201)
            for variant in application.variants:
                with variant.path.open("rb") as file:
                    answer = rest.post(
                        f"/applications/{application.name}/variants/",
                        files={"file": file},
                        data={"name": variant.name, "accuracy": f"{variant.accuracy:g}"},
                    )
                expect(answer, f"uploading {variant.name}", 201)

        def ready() -> bool:
            states = [v["state"] for a in wanted for v in pages(rest, f"/applications/{a.name}/variants/")]
            if "failed" in states:
                raise RuntimeError("a variant could not be profiled")
            return set(states) == {"ready"}

        eventually(ready, timeout=180, why="all variants ready")
        return {
            (application.name, profile["variant"]): LatencyModel(
                [(point["batch"], point["p50_ms"] / 1000) for point in profile["latencies"]]
            )
            for application in wanted
            for profile in pages(rest, f"/applications/{application.name}/profiles/")
        }


def rates(profiles: Profiles, wanted: Sequence[DemoApplication], utilisation: float, slowdown: float) -> dict:
    """Queries/s by application that keep the devices so busy with the most accurate variants alone, each application
    as much as the other, where run times are ``slowdown`` times the profiles."""
    found = {}
    for application in wanted:
        best = max(application.variants, key=lambda variant: variant.accuracy)
        alone_s = profiles[application.name, best.name].seconds(1) * slowdown
        found[application.name] = utilisation * DEVICES / len(wanted) / alone_s
    return found


# --- live ------------------------------------------------------------------------------------------------------------


def replay(appliance: RunningAppliance, wanted: Sequence[DemoApplication], arrivals: Arrivals, known: Profiles) -> Live:
    """Send ``arrivals`` to the appliance."""
    one = Client(appliance.http, appliance.credentials["api_key"], wanted)
    before = _run_times(appliance)
    began = time.monotonic()
    uvloop.run(one.replay(arrivals))
    took_s = time.monotonic() - began
    ran = {variant: times.since(before.get(variant)) for variant, times in _run_times(appliance).items()}
    slowdown, ratios = slowdowns(one.answers, known, ran)
    counts = one.counts
    queries = counts.sent + counts.unsent
    return Live(
        queries=queries,
        violation_ratio=1 - counts.in_time / queries if queries else 0.0,
        accuracy=counts.accuracy_sum / counts.in_time if counts.in_time else None,
        median_ms=statistics.median(counts.latencies_ms) if counts.latencies_ms else None,
        busy=sum(times.sum_s for times in ran.values()) / took_s / DEVICES,
        slowdown=slowdown,
        ratios=ratios,
        load_average=os.getloadavg()[0],
    )


def slowdowns(
    answers: Sequence[tuple[str, str, int]], known: Profiles, ran: Mapping[str, runtimes.RunTimes]
) -> tuple[float, dict[str, tuple[float, ...]]]:
    """Run times over profiles: the mean of all, and the distribution by variant id.

    Args:
        answers: (application, variant, rows of its batch).
        ran: by variant's name.

    Raises:
        ValueError: nothing was answered.
    """
    # Of a batch of n rows n answers tell.
    batches: dict[tuple[str, str], dict[int, float]] = {}
    for (application, variant, rows), count in Counter(answers).items():
        batches.setdefault((application, variant), {})[rows] = count / rows
    profiled = {key: [(known[key].seconds(n), count) for n, count in sizes.items()] for key, sizes in batches.items()}
    together: dict[float, float] = {}
    for _, variant in profiled:
        for bound, count in ran[variant].counts.items():
            together[bound] = together.get(bound, 0.0) + count
    everything = [pair for pairs in profiled.values() for pair in pairs]
    took = runtimes.RunTimes(together, sum(ran[variant].sum_s for _, variant in profiled))
    usual = runtimes.ratios(everything, took)
    found = {}
    for application, variant in known:
        pairs = profiled.get((application, variant), [])
        enough = sum(count for _, count in pairs) >= BATCHES
        found[f"{application}/{variant}"] = runtimes.ratios(pairs, ran[variant]) if enough else usual
    return statistics.fmean(usual), found


def _run_times(appliance: RunningAppliance) -> dict[str, runtimes.RunTimes]:
    return runtimes.read(httpx.get(f"{appliance.node_http}/metrics", timeout=10).raise_for_status().text)


def way_s(appliance: RunningAppliance, wanted: Sequence[DemoApplication]) -> float:
    """What a query costs beside its run (s): the mean round trip of single queries, less what executors ran for them.
    The queries insist on a variant, and so wait for no company."""
    with appliance.inference() as http:
        versions = {a.name: http.get(f"/v2/models/{a.name}").raise_for_status().json()["versions"][0] for a in wanted}
    before = sum(times.sum_s for times in _run_times(appliance).values())
    one = Client(appliance.http, appliance.credentials["api_key"], wanted)
    taken = uvloop.run(one.probe(versions))
    ran_s = sum(times.sum_s for times in _run_times(appliance).values()) - before
    return max(0.0, (sum(taken) - ran_s) / len(taken) - AROUND_S)


# --- simulated -------------------------------------------------------------------------------------------------------


def scenario(
    wanted: Sequence[DemoApplication],
    arrivals: Arrivals,
    known: Profiles,
    ratios: Mapping[str, Sequence[float]],
    way: float,
    seed: int,
) -> Scenario:
    """What was served, for the simulator: profiles as the gateway reads them, run times as they were."""
    models = []
    for application in wanted:
        for variant in application.variants:
            latency = known[application.name, variant.name]
            # Each batch size has a point of its own: live, batches between two profiled ones are not padded.
            points = tuple((rows, latency.seconds(rows) + AROUND_S) for rows in range(1, latency.largest + 1))
            models.append(Model(application.name, variant.name, variant.accuracy, {"cpu": points}))
    return Scenario(
        name="fidelity",
        models=tuple(models),
        arrivals=arrivals,
        devices=tuple((f"cpu-{i}", "cpu") for i in range(DEVICES)),
        slo_s={application.name: application.slo_ms / 1000 for application in wanted},
        network_s=way / 2,
        run_ratios=ratios,
        seed=seed,
        control=Control(period_s=PERIOD_S, initial_qps=1.0),
    )


# --- both ------------------------------------------------------------------------------------------------------------


def measure(quick: bool = False) -> list[Row]:
    """A row for each utilisation and repetition; ``quick``: the highest utilisation only, and shorter."""
    wanted = chosen()
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="nereus-fidelity-") as folder:
        appliance = RunningAppliance(
            Path(folder) / "home",
            environment={
                "NEREUS_CPU_DEVICES": ";".join(str(cores[i % len(cores)]) for i in range(DEVICES)),
                "NEREUS_GPU": "0",
                "NEREUS_PLAN_PERIOD_S": f"{PERIOD_S:g}",
            },
        )
        try:
            appliance.start()
            known = register(appliance.console, appliance.credentials["api_token"], wanted)
            with appliance.inference() as http:
                eventually(lambda: http.get("/v2/health/ready").status_code == 200)
            return _rows(appliance, wanted, known, quick)
        finally:
            appliance.stop()


def _rows(appliance: RunningAppliance, wanted: Sequence[DemoApplication], known: Profiles, quick: bool) -> list[Row]:
    names = tuple(application.name for application in wanted)

    def arrivals(seconds: float, utilisation: float, slowdown: float, seed: int) -> Arrivals:
        return Generator("poisson", seconds, rates(known, wanted, utilisation, slowdown)).arrivals(names, seed)

    slowdown = replay(appliance, wanted, arrivals(REHEARSAL_S, UTILISATIONS[0], 1.0, SEED), known).slowdown
    rows = []
    for repetition in range(REPETITIONS):
        for utilisation in UTILISATIONS[-1:] if quick else UTILISATIONS:
            seed = SEED + 1 + repetition
            way = way_s(appliance, wanted)
            sent = arrivals(QUICK_SECONDS if quick else SECONDS, utilisation, slowdown, seed)
            live = replay(appliance, wanted, sent, known)
            # The machine may be busier by now than it was: the next load is for the devices that there are now.
            slowdown = live.slowdown
            summary = simulate(scenario(wanted, sent, known, live.ratios, way, seed), "nereus").summary
            simulated = Simulated(
                summary["violation_ratio"], summary["effective_accuracy"], summary["median_latency_ms"]
            )
            rows.append(Row(utilisation, live, simulated, way * 1000))
            print(_line(rows[-1]), file=sys.stderr, flush=True)
    return rows


def _line(row: Row) -> str:
    def number(value: float | None, digits: int = 2) -> str:
        return "–" if value is None else f"{value:.{digits}f}"

    live, simulated = row.live, row.simulated
    return (
        f"| {row.utilisation:.0%} | {live.queries:,} | {live.violation_ratio:.2%} | {simulated.violation_ratio:.2%} "
        f"| {row.violations_apart:.2f} | {number(live.accuracy)} | {number(simulated.accuracy)} "
        f"| {row.accuracy_apart:.2f} | {number(live.median_ms, 0)} | {number(simulated.median_ms, 0)} "
        f"| {live.busy:.0%} | {live.slowdown:.2f} | {row.way_ms:.1f} | {live.load_average:.1f} |"
    )


def render(rows: Sequence[Row]) -> str:
    """A Markdown table of all repetitions, and the medians of what they differ by."""
    lines = [
        "| load | queries | violations live | simulated | apart, points | accuracy live | simulated | apart, points "
        "| median ms live | simulated | devices busy | run time / profile | way ms | load average |",
        "|---:" * 14 + "|",
        *map(_line, rows),
        "",
    ]
    for utilisation in dict.fromkeys(row.utilisation for row in rows):
        these = [row for row in rows if row.utilisation == utilisation]
        violations = statistics.median(row.violations_apart for row in these)
        accuracy = statistics.median(row.accuracy_apart for row in these)
        lines += [
            f"At {utilisation:.0%}, median of {len(these)}: violations {violations:.2f} points apart, accuracy "
            f"{accuracy:.2f} points.",
            "",
        ]
    lines.append(
        f"The machine has {len(os.sched_getaffinity(0))} cores; a load average well above the devices that were busy "
        "is other work on it, and so are run times well above the profile's."
    )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fidelity", description="Live against simulated.")
    parser.add_argument("--quick", action="store_true", help="the highest load only, and shorter")
    print(render(measure(parser.parse_args(arguments).quick)))


if __name__ == "__main__":
    main()
