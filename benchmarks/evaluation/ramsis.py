"""The world of RAMSIS (Mendoza et al., EuroSys '24), and its figures.

It is made from the published profiles and trace: 60 workers, image classification, an SLO of 150 ms, and the 95th
percentile of a batch's times as its exact run time. Profiles and trace are brought into the simulator's format beside
the kept runs; nothing of them is kept elsewhere.
"""

from __future__ import annotations

import csv
import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from scheduler.control.demand import estimate
from scheduler.simulation import ScenarioError
from scheduler.stacks.ramsis import load_policies
from scheduler.stacks.ramsis.arrivals import round_robin
from scheduler.stacks.ramsis.expectation import Expected
from scheduler.stacks.ramsis.worker import QUEUE, Worker, WorkerVariant, worker

from .worlds import QUICK_S, World

WORKERS, SLO_MS, COLUMN = 60, 150, "p95_ms"
APPLICATION, KIND = "image", "n1"
#: seconds of a constant load (Section 7.2), queries/s that are simulated, and the trace's name
CONSTANT_S = 30
LOADS = (1200, 2000, 3200, 3400, 3600)
#: queries/s that policies are timed at
TIMED = 2001.0
#: policies that are timed
SOLVES = 3
TWITTER = "twitter"
#: behind a load: known to the only plan
KNOWN = ", known"
#: queries/s that the least accurate variant carries in its best batch within the SLO
CAPACITY = 3812


@dataclass(frozen=True)
class Published:
    """The paper's prototype at one load or on the trace.

    Attributes:
        ramsis, jellyfish, switching: violations of its three systems, 0 to 1; None: not published.
    """

    ramsis: float | None
    jellyfish: float | None
    switching: float | None


#: Tables 4 and 3 (150 ms; 60 workers). Its prototype has shorter run times than the 95th percentile for most batches
PUBLISHED: Mapping[str, Published] = {
    "1200": Published(0.004990, 0.000279, 0.000306),
    "2000": Published(0.003076, 0.000150, 0.0),
    "3200": Published(0.004786, 0.036645, 0.000587),
    "3400": Published(None, None, None),
    "3600": Published(0.024540, 0.027240, 0.000019),
    TWITTER: Published(0.001277, 0.004141, 0.004136),
}


def worlds(data: Path, into: Path, quick: bool) -> dict[str, World]:
    """The worlds by load, measured and known, and on the trace.

    Args:
        data: folder with ``image_profile.csv`` and ``twitter_qps.csv``.
        into: where these are written in the simulator's format.
    """
    _converted(data, into)
    base = {
        "profiles": "profiles.csv",
        "latency": COLUMN,
        "devices": {KIND: WORKERS},
        "slo_ms": {"default": SLO_MS},
        "seed": 1,
    }
    found = {}
    for load in LOADS:
        generator = {"kind": "poisson", "duration_s": CONSTANT_S, "rates": {APPLICATION: load}}
        values = {**base, "name": f"ramsis, {load}/s", "generator": generator, "control": {"initial_qps": load}}
        found[str(load)] = World(json.dumps(values), into)
        # The only plan is made for the true load.
        control = {"initial_qps": _planned_as(load), "period_s": 1000, "burst_check_s": 1000}
        values = {**values, "name": f"ramsis, {load}/s, known", "control": control}
        found[f"{load}{KNOWN}"] = World(json.dumps(values), into)
    values = {**base, "name": "ramsis, Twitter trace", "trace": "trace.csv", "control": {"initial_qps": 1850}}
    found[TWITTER] = World(json.dumps(values), into, QUICK_S if quick else None)
    return found


def expectations(worlds: Mapping[str, World]) -> dict[str, Expected]:
    """Return, by constant load, the expectation of the policy that knows it.

    See Section 5.1 of the paper. Empty where files are missing.
    """
    made = _worker(worlds)
    if made is None:
        return {}
    return {
        str(load): load_policies.evaluated(made, round_robin(load, WORKERS), load, "queries").expected
        for load in LOADS
        if load < made.capacity() * WORKERS
    }


@dataclass(frozen=True)
class Solves:
    """CPU time of policies of the world's worker.

    Attributes:
        variants: that are not dominated.
        maximal_s, variable_s: seconds for a policy and its expectation by maximal and by variable batching, medians.
    """

    variants: int
    maximal_s: float
    variable_s: float


def solves(worlds: Mapping[str, World]) -> Solves | None:
    """Time policies for loads around :data:`TIMED`; None where files are missing."""
    made = _worker(worlds)
    if made is None:
        return None
    found = []
    for variable in (False, True):
        seconds = []
        for number in range(SOLVES):
            # None of them was solved before.
            load = TIMED + number / 7
            began = time.process_time()
            load_policies.evaluated(made, round_robin(load, WORKERS), load, "queries", variable)
            seconds.append(time.process_time() - began)
        found.append(median(seconds))
    return Solves(len(made.variants), *found)


def _worker(worlds: Mapping[str, World]) -> Worker | None:
    """The worker of all published variants; None where files are missing."""
    try:
        scenario = worlds[str(LOADS[0])].scenario()
    except ScenarioError:
        return None
    variants = []
    for model in scenario.models:
        latency = model.latency(KIND)
        seconds = tuple(latency.seconds(rows) for rows in range(1, min(latency.largest, QUEUE) + 1))
        variants.append(WorkerVariant(model.name, model.accuracy, seconds))
    return worker(SLO_MS / 1000, variants)


def _planned_as(load: float) -> float:
    """Return the rate before the start for which the first plan's demand is ``load``.

    They differ, because demand has a margin over the rate.
    """
    rate = float(load)
    for _ in range(20):
        rate *= load / estimate([(-1, {APPLICATION: rate})], [APPLICATION], 0, None, 1000)[APPLICATION]
    return rate


def _converted(data: Path, into: Path) -> None:
    """Write profiles and trace in the simulator's format.

    Where the published files are missing nothing is written, and the runs say so.
    """
    into.mkdir(parents=True, exist_ok=True)
    if (data / "image_profile.csv").exists():
        with (data / "image_profile.csv").open(newline="") as file:
            rows = [
                f"{APPLICATION},{row['model']},{row['accuracy']},{KIND},{row['batch']},{row[COLUMN]}\n"
                for row in csv.DictReader(file)
            ]
        head = f"application,variant,accuracy_normalized,device_type,batch,{COLUMN}\n"
        (into / "profiles.csv").write_text(head + "".join(rows))
    if (data / "twitter_qps.csv").exists():
        (into / "trace.csv").write_text("arrival_ms,application\n" + "".join(_arrivals(data / "twitter_qps.csv")))


def _arrivals(path: Path) -> list[str]:
    """Poisson arrivals within each second of the trace, with a fixed seed."""
    numbers, lines = random.Random(1), []
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            second, rate, at = float(row["second"]), float(row["qps"]), 0.0
            while (at := at + numbers.expovariate(rate)) < 1:
                lines.append(f"{(second + at) * 1000:.6f},{APPLICATION}\n")
    return lines
