"""Live against simulated: the same queries at the same times, answered twice.

A real appliance with two one-core devices answers them, and the simulator does, on profiles and run times measured in
the same run with everything up. Violations are counted strictly at the client.

Gateway, load and executors share the machine's cores, so batches take longer than profiled: the simulator draws run
times from the distribution of those observed, by variant. It is fitted to the executors' metrics after each replay, and
knows nothing of when, on which device or in what order batches ran.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx2
import numpy as np

from appliance.demo.manifest import DemoApplication, applications
from appliance.demo.rest import client, pages
from appliance.load.records import Records
from appliance.load.requests import v2_request
from appliance.load.sender import Load
from benchmarks import runtimes
from benchmarks.contenders import Appliance, Contender, Variant, started
from benchmarks.figures import markdown
from benchmarks.load.driver import Generator as Sender
from scheduler.simulation import simulate
from scheduler.simulation.arrivals import Generator, Trace
from scheduler.simulation.profiles import Model
from scheduler.simulation.scenario import ControlSettings, Scenario
from tools.child import ROOT, RunningAppliance, eventually
from workers.dispatch.latency import LatencyModel

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
#: Connections opened beforehand; an answer that takes longer than the patience counts as none.
CONNECTIONS, PATIENCE_S = 16, 5.0
#: single queries to each application that probe the way, and the time from one to the next
PROBES, PAUSE_S = 20, 0.1

#: latency by (application, variant): medians, as profiled
Profiles = Mapping[tuple[str, str], LatencyModel]
#: name and type of each
Devices = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Live:
    """A replay.

    Attributes:
        violation_ratio: 0 to 1.
        accuracy: normalised percent; None where nothing was in time.
        median_ms: median latency; None where nothing was answered.
        slowdown: run time of all batches over their profiles' medians.
        ratios: the same by variant id, as a distribution.
        load_average: of the machine, over the last minute.
    """

    queries: int
    violation_ratio: float
    accuracy: float | None
    median_ms: float | None
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
class Served:
    """The service as it ran.

    Attributes:
        devices: with their types.
        profiles: by device type.
        ratios: run times over profiled ones, by variant id.
        way_s: seconds that a query takes beside its run.
    """

    devices: Devices
    profiles: Mapping[str, Profiles]
    ratios: Mapping[str, Sequence[float]]
    way_s: float


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
    """Return the demo's applications with their three cheapest variants.

    They have this benchmark's objective and accuracies. Variants' names are unique, as executors' metrics tell nothing
    but these.
    """
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


def register(appliance: Appliance, wanted: Sequence[DemoApplication]) -> Profiles:
    """Create the applications, wait until all are profiled, and return the profiles."""
    for application in wanted:
        variants = [Variant(one.name, one, one.accuracy) for one in application.variants]
        appliance.register(application.name, application.slo_ms, variants, application.signature, pinned=False)
    with client(appliance.console, appliance.credentials["api_token"]) as rest:
        return {
            (application.name, profile["variant"]): LatencyModel(
                [(point["batch"], point["p50_ms"] / 1000) for point in profile["latencies"]]
            )
            for application in wanted
            for profile in pages(rest, f"/applications/{application.name}/profiles/")
        }


def one_box(profiles: Profiles, ratios: Mapping[str, Sequence[float]], way: float) -> Served:
    """This benchmark's devices."""
    return Served(tuple((f"cpu-{i}", "cpu") for i in range(DEVICES)), {"cpu": profiles}, ratios, way)


def rates(served: Served, wanted: Sequence[DemoApplication], utilisation: float, slowdown: float) -> dict:
    """Return the rates that keep the devices so busy, in queries/s by application.

    They do so with the most accurate variants alone, each application as much as the other, where run times are
    ``slowdown`` times the profiles.
    """
    found = {}
    for application in wanted:
        best = max(application.variants, key=lambda variant: variant.accuracy)
        alone = [served.profiles[kind][application.name, best.name].seconds(1) for _, kind in served.devices]
        found[application.name] = utilisation / len(wanted) * sum(1 / seconds for seconds in alone) / slowdown
    return found


# --- live ------------------------------------------------------------------------------------------------------------


def send(
    appliance: RunningAppliance,
    wanted: Sequence[DemoApplication],
    due: Sequence[tuple[float, int]],
    versions: Mapping[str, str] | None = None,
) -> tuple[Records, list[str], dict[str, runtimes.RunTimes]]:
    """Send queries of one row.

    Returns:
        Their records, the variants that these refer to by place, and the executors' run times meanwhile.

    Args:
        due: seconds since the beginning, and place in ``wanted``, of each query.
        versions: by application, a variant that must answer.
    """
    key, versions = appliance.credentials["api_key"], versions or {}
    requests, rows = [], []
    for application in wanted:
        spec = application.signature["inputs"][0]["name"]
        samples = np.asarray(application.samples()[spec], np.float32)
        version = versions.get(application.name, "")
        requests += [v2_request(application.name, key, row[np.newaxis], version, spec) for row in samples]
        rows.append(len(samples))
    # Requests of an application follow those of the ones before; its queries take them in turn.
    each = [(at, sum(rows[:place]) + number % rows[place]) for number, (at, place) in enumerate(due)]
    names = [variant.name for application in wanted for variant in application.variants]
    with tempfile.TemporaryDirectory(prefix="nereus-f-") as folder, Sender() as sender:
        load = Load(
            port=int(appliance.http.rpartition(":")[2]),
            requests=requests,
            answers={name: [] for name in names},
            connections=CONNECTIONS,
            file=f"{folder}/rows.npy",
            due=each,
            patience_s=PATIENCE_S,
        )
        before: dict[str, runtimes.RunTimes] = {}
        records, _ = sender.run(load, SLO_MS / 1000, lambda: before.update(_run_times(appliance)))
        ran = {variant: times.since(before.get(variant)) for variant, times in _run_times(appliance).items()}
        return records, names, ran


def replay(appliance: RunningAppliance, wanted: Sequence[DemoApplication], arrivals: Trace, known: Profiles) -> Live:
    """Send ``arrivals`` to the appliance."""
    due = list(zip(arrivals.times, arrivals.applications, strict=True))
    records, names, ran = send(appliance, wanted, due)
    application_of = {variant.name: application.name for application in wanted for variant in application.variants}
    accuracy_of = {variant.name: variant.accuracy for application in wanted for variant in application.variants}
    answered = records.rows[records.answered]
    variants = [names[place] for place in answered["variant"]]
    answers = [(application_of[name], name, int(rows)) for name, rows in zip(variants, answered["batch"], strict=True)]
    slowdown, ratios = slowdowns(answers, known, ran)
    in_time = [accuracy_of[names[place]] for place in records.rows["variant"][records.in_time]]
    return Live(
        queries=len(records),
        violation_ratio=1 - len(in_time) / len(records) if len(records) else 0.0,
        accuracy=statistics.fmean(in_time) if in_time else None,
        median_ms=float(np.median(records.took_s[records.answered])) * 1000 if len(answered) else None,
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
    # Each of the n answers of a batch of n rows tells of it.
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
    return runtimes.read(httpx2.get(f"{appliance.node_http}/metrics", timeout=10).raise_for_status().text)


def way_s(appliance: RunningAppliance, wanted: Sequence[DemoApplication]) -> float:
    """Return the seconds that a query takes beside its run.

    They are the mean round trip of single queries less their executors' run times. The queries name a variant, so that
    no batching delay is part of it.

    Raises:
        RuntimeError: none was answered.
    """
    with appliance.inference() as http:
        versions = {a.name: http.get(f"/v2/models/{a.name}").raise_for_status().json()["versions"][0] for a in wanted}
    due = [(PAUSE_S * number, number % len(wanted)) for number in range(PROBES * len(wanted))]
    records, _, ran = send(appliance, wanted, due, versions)
    taken = (records.rows["ended"] - records.rows["sent"])[records.answered]
    if not len(taken):
        raise RuntimeError(f"{versions}: not one query was answered: {records.ends()}")
    return max(0.0, (float(taken.sum()) - sum(times.sum_s for times in ran.values())) / len(taken))


# --- simulated -------------------------------------------------------------------------------------------------------


def scenario(wanted: Sequence[DemoApplication], arrivals: Trace, served: Served, seed: int) -> Scenario:
    """Return the live run as a scenario for the simulator.

    Profiles are as the gateway reads them, run times as they were.
    """
    models = []
    for application in wanted:
        for variant in application.variants:
            # Each batch size has a point of its own: live, batches between two profiled ones are not padded.
            points = {
                kind: tuple((rows, latency.seconds(rows)) for rows in range(1, latency.largest + 1))
                for kind, known in served.profiles.items()
                for latency in (known[application.name, variant.name],)
            }
            models.append(Model(application.name, variant.name, variant.accuracy, points))
    return Scenario(
        name="fidelity",
        models=tuple(models),
        arrivals=arrivals,
        devices=served.devices,
        slo_s={application.name: application.slo_ms / 1000 for application in wanted},
        network_s=served.way_s / 2,
        run_ratios=served.ratios,
        seed=seed,
        control=ControlSettings(period_s=PERIOD_S, initial_qps=1.0),
    )


# --- both ------------------------------------------------------------------------------------------------------------


def measure(quick: bool = False) -> list[Row]:
    """Return a row for each utilisation and repetition.

    Args:
        quick: the highest utilisation only, and shorter.
    """
    wanted = chosen()
    cores = sorted(os.sched_getaffinity(0))
    environment = {
        "NEREUS_CPU_DEVICES": ";".join(str(cores[i % len(cores)]) for i in range(DEVICES)),
        "NEREUS_PLAN_PERIOD_S": f"{PERIOD_S:g}",
    }
    with (
        tempfile.TemporaryDirectory(prefix="nereus-f-") as folder,
        started([Contender("live", ROOT, environment)], Path(folder)) as (appliance,),
    ):
        known = register(appliance, wanted)
        with appliance.inference() as http:
            eventually(lambda: http.get("/v2/health/ready").status_code == 200)
        return _rows(appliance, wanted, known, quick)


def _rows(appliance: RunningAppliance, wanted: Sequence[DemoApplication], known: Profiles, quick: bool) -> list[Row]:
    names = tuple(application.name for application in wanted)

    def arrivals(seconds: float, utilisation: float, slowdown: float, seed: int) -> Trace:
        wished = rates(one_box(known, {}, 0.0), wanted, utilisation, slowdown)
        return Generator("poisson", seconds, wished).arrivals(names, seed)

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
            summary = simulate(scenario(wanted, sent, one_box(known, live.ratios, way), seed), "nereus").summary
            simulated = Simulated(
                summary["violation_ratio"], summary["effective_accuracy"], summary["median_latency_ms"]
            )
            rows.append(Row(utilisation, live, simulated, way * 1000))
            print(markdown([_cells(rows[-1])]).splitlines()[-1], file=sys.stderr, flush=True)
    return rows


def _cells(row: Row) -> dict[str, object]:
    live, simulated = row.live, row.simulated
    return {
        "load": f"{row.utilisation:.0%}",
        "queries": live.queries,
        "violations % live": 100 * live.violation_ratio,
        "simulated": 100 * simulated.violation_ratio,
        "apart": row.violations_apart,
        "accuracy % live": live.accuracy,
        "accuracy simulated": simulated.accuracy,
        "accuracy apart": row.accuracy_apart,
        "median ms live": live.median_ms,
        "median ms simulated": simulated.median_ms,
        "run time / profile": live.slowdown,
        "way ms": row.way_ms,
        "load average": live.load_average,
    }


def render(rows: Sequence[Row]) -> str:
    """A Markdown table of all repetitions, and the medians of what they differ by."""
    lines = [markdown([_cells(row) for row in rows]), ""]
    for utilisation in dict.fromkeys(row.utilisation for row in rows):
        these = [row for row in rows if row.utilisation == utilisation]
        violations = statistics.median(row.violations_apart for row in these)
        accuracy = statistics.median(row.accuracy_apart for row in these)
        lines += [
            f"At {utilisation:.0%}, median of {len(these)}: violations {violations:.2f} points apart, accuracy "
            f"{accuracy:.2f} points.",
            "",
        ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks fidelity", description="Live against simulated.")
    parser.add_argument("--quick", action="store_true", help="the highest load only, and shorter")
    print(render(measure(parser.parse_args(arguments).quick)))
