"""Sections on RAMSIS (Mendoza et al., EuroSys '24), in its own world.

It is made from the published profiles and trace: 60 workers, image classification, an SLO of 150 ms, and the 95th
percentile of a batch's times as its exact run time. Profiles and trace are brought into the simulator's format beside
the kept runs; nothing of them is kept elsewhere.
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean

from benchmarks.figures import table
from scheduler.control.demand import estimates
from scheduler.stacks.paper import Expected
from scheduler.stacks.ramsis import load_policies
from scheduler.stacks.ramsis.worker import LENGTHS, QUEUE, WorkerVariant, worker

from .page import Claim, Context, Grid, Results, Section, claim, number, percent
from .proteus import of
from .runs import Case
from .worlds import World

WORKERS, SLO_MS, COLUMN = 60, 150, "p95_ms"
APPLICATION, KIND = "image", "n1"
#: seconds of a constant load, and the paper's ten loads in queries/s (Section 7.2)
CONSTANT_S = 12
LOADS = tuple(range(400, 4001, 400))
TWITTER = "twitter"
#: behind a load: known to the only plan
KNOWN = ", known"
#: queries/s that the least accurate variant carries in its best batch within the SLO
CAPACITY = 3812
#: violations (percent) of the paper's prototype at 1,200, 2,000, 3,200 and 3,600/s and on the trace: Tables 4 and 3
PROTOTYPE = {
    "RAMSIS": ("0.50", "0.31", "0.48", "2.45", "0.13"),
    "Jellyfish+": ("0.03", "0.02", "3.66", "2.72", "0.41"),
    "ModelSwitching": ("0.03", "0.00", "0.06", "0.00", "0.41"),
}

OURS, KNOWN_LOAD, BY_MODELS = "ramsis", "ramsis-known-load", "ramsis-by-models"
#: baselines, and the percent by which RAMSIS is more accurate on the mean of ten loads: prototype, artifact's simulator
BASELINES = {"jellyfish+": (4.95, 3.70), "modelswitching": (4.82, 1.84)}
STACKS = (OURS, *BASELINES, "nereus")
#: forms of the decision process, and where they are compared
FORMS = (OURS, BY_MODELS)
FORMS_AT = (1200, 2000, 3200)
#: violations up to which the paper shows a point, more violations that are still comparable (0 to 1), and points of
#: accuracy that are the same
SHOWN, COMPARABLE, SAME = 0.05, 0.005, 0.5


def worlds(data: Path, into: Path) -> dict[str, World]:
    """The worlds by load, measured and known, and on the trace.

    Args:
        data: folder with ``image_profile.csv`` and ``twitter_qps.csv``.
        into: where these are written in the simulator's format.
    """
    _converted(data, into)
    base = {"profiles": "profiles.csv", "latency": COLUMN, "devices": {KIND: WORKERS}, "seed": 1}
    base["slo_ms"] = {"default": SLO_MS}
    made = {}
    for load in LOADS:
        generator = {"kind": "poisson", "duration_s": CONSTANT_S, "rates": {APPLICATION: load}}
        values = {**base, "name": f"ramsis, {load}/s", "generator": generator, "control": {"initial_qps": load}}
        made[str(load)] = World(json.dumps(values), into)
        # The only plan is made for the true load.
        control = {"initial_qps": _planned_as(load), "period_s": 1000, "burst_check_s": 1000}
        values = {**values, "name": f"ramsis, {load}/s, known", "control": control}
        made[f"{load}{KNOWN}"] = World(json.dumps(values), into)
    values = {**base, "name": "ramsis, Twitter trace", "trace": "trace.csv", "control": {"initial_qps": 1850}}
    made[TWITTER] = World(json.dumps(values), into)
    return made


def _planned_as(load: float) -> float:
    """The rate before the start for which the first plan's demand is ``load``."""
    rate = float(load)
    for _ in range(20):
        rate *= load / estimates([(-1, {APPLICATION: rate})], [APPLICATION], 0, None, 1000).planned[APPLICATION]
    return rate


def _converted(data: Path, into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    with (data / "image_profile.csv").open(newline="") as file:
        rows = [
            f"{APPLICATION},{row['model']},{row['accuracy']},{KIND},{row['batch']},{row[COLUMN]}\n"
            for row in csv.DictReader(file)
        ]
    head = f"application,variant,accuracy_normalized,device_type,batch,{COLUMN}\n"
    (into / "profiles.csv").write_text(head + "".join(rows))
    (into / "trace.csv").write_text("arrival_ms,application\n" + "".join(_arrivals(data / "twitter_qps.csv")))


def _arrivals(path: Path) -> list[str]:
    numbers, lines = random.Random(1), []
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            second, rate, at = float(row["second"]), float(row["qps"]), 0.0
            while (at := at + numbers.expovariate(rate)) < 1:
                lines.append(f"{(second + at) * 1000:.6f},{APPLICATION}\n")
    return lines


def _worlds(context: Context) -> dict[str, World]:
    return worlds(context.data.parent / "ramsis", context.runner.folder / "ramsis")


def _expectations(world: World) -> dict[int, Expected]:
    """By constant load, what the policy that knows it expects (Section 5.1)."""
    variants = []
    for model in world.scenario().models:
        latency = model.latency(KIND)
        seconds = tuple(latency.seconds(rows) for rows in range(1, min(latency.largest, QUEUE) + 1))
        variants.append(WorkerVariant(model.name, model.accuracy, seconds))
    made = worker(SLO_MS / 1000, variants)
    return {load: load_policies.evaluated(made, WORKERS, load).expected for load in FORMS_AT if load in LOADS}


# --- constant loads ---------------------------------------------------------------------------------------------------


def _loads(context: Context) -> Grid:
    made = _worlds(context)
    return {f"{load}/s": of(made[str(load)], STACKS) for load in LOADS}


def _prototype(_context: Context, _results: Results) -> Iterator[str]:
    head = ("violations of the paper's prototype", "1200/s", "2000/s", "3200/s", "3600/s", "trace")
    yield table(head, [(name, *(f"{one}%" for one in ratios)) for name, ratios in PROTOTYPE.items()])


def _load_claims(_context: Context, results: Results) -> Iterator[Claim]:
    gains, more, relative = [], [], {}
    for stack in BASELINES:
        pairs = [(cells[OURS], cells[stack]) for cells in results.values() if {OURS, stack} <= cells.keys()]
        pairs = [(ours, theirs) for ours, theirs in pairs if max(ours.violations, theirs.violations) < SHOWN]
        gains += [ours.accuracy - theirs.accuracy for ours, theirs in pairs]
        more += [ours.violations - theirs.violations for ours, theirs in pairs]
        relative[stack] = [100 * (ours.accuracy / theirs.accuracy - 1) for ours, theirs in pairs]
    if not all(relative.values()):
        return
    finding = f"{min(gains):+.2f} to {max(gains):+.2f} points; violations "
    finding += f"{100 * min(more):+.2f} to {100 * max(more):+.2f} points"
    sentence = "At constant loads equal or higher accuracy than the baselines at a comparable violation rate (Fig. 6)"
    # To a tenth of a point: runs are samples.
    yield claim(sentence, finding, round(min(gains), 1) >= 0 and max(more) < COMPARABLE)
    for stack, (prototype, simulated) in BASELINES.items():
        finding = f"{fmean(relative[stack]):.2f}% at {len(relative[stack])} loads"
        sentence = f"On average {prototype}% more accurate than `{stack}` (Section 7.2); simulated {simulated}% (A.4)"
        yield claim(sentence, finding, fmean(relative[stack]) >= simulated)


# --- forms of the decision process ------------------------------------------------------------------------------------


def _forms(context: Context) -> Grid:
    made = _worlds(context)
    loads = [load for load in FORMS_AT if load in LOADS]
    known = {load: {KNOWN_LOAD: Case(made[f"{load}{KNOWN}"], KNOWN_LOAD)} for load in loads}
    return {f"{load}/s": of(made[str(load)], FORMS) | known[load] for load in loads}


def _form_claims(context: Context, results: Results) -> Iterator[Claim]:
    gains = {
        row: cells[BY_MODELS].accuracy - cells[OURS].accuracy
        for row, cells in results.items()
        if {OURS, BY_MODELS} <= cells.keys()
    }
    if gains:
        sentence = f"Discretising by models performs like {LENGTHS} even steps (Appendix C, Fig. 10)"
        finding = "; ".join(f"{gain:+.2f} points of accuracy at {row}" for row, gain in gains.items())
        yield claim(sentence, finding, max(map(abs, gains.values())) < SAME)
    known = {row: cells[KNOWN_LOAD] for row, cells in results.items() if KNOWN_LOAD in cells}
    if known:
        yield from expected_claims(known, _expectations(_worlds(context)[str(LOADS[0])]))


def expected_claims(known: Mapping[str, object], expected: Mapping[int, Expected]) -> Iterator[Claim]:
    """The policy for the true load beside its expectation of few violations."""
    pairs = [
        (load, known[f"{load}/s"], one)
        for load, one in expected.items()
        if f"{load}/s" in known and one.violation_rate < SHOWN
    ]
    finding = "; ".join(
        f"{load}/s: {number(outcome.accuracy)} at {percent(outcome.violations, 2)}, expected {number(one.accuracy)} "
        f"at {percent(one.violation_rate, 2)}"
        for load, outcome, one in pairs
    )
    # As shown: a run is a sample.
    bounded = all(
        round(outcome.accuracy, 1) >= round(one.accuracy, 1)
        and round(outcome.violations, 4) <= round(one.violation_rate, 4)
        for _, outcome, one in pairs
    )
    if pairs:
        sentence = "Expectations bound accuracy from below and violations from above (Sections 5.1, 7.3.1, Fig. 7)"
        yield claim(sentence, finding, bounded)


# --- the Twitter trace ------------------------------------------------------------------------------------------------


def _trace(context: Context) -> Grid:
    return {TWITTER: of(_worlds(context)[TWITTER], STACKS)}


def _trace_claims(_context: Context, results: Results) -> Iterator[Claim]:
    cells = results[TWITTER]
    if not {OURS, *BASELINES} <= cells.keys():
        return
    rates = [cells[stack].violations for stack in (OURS, *BASELINES)]
    reason = "for 30 s of the trace more arrives than 60 workers carry with these run times"
    finding = " / ".join(percent(rate, 2) for rate in rates)
    sentence = "On the trace RAMSIS, Jellyfish+, ModelSwitching violate 0.13 / 0.41 / 0.41% (Table 3)"
    yield claim(sentence, finding, reason)
    accuracies = [cells[stack].accuracy for stack in (OURS, *BASELINES)]
    holds = accuracies[0] > max(accuracies[1:]) and rates[0] <= min(rates[1:])
    reason = f"the baselines violate more than the {SHOWN:.0%} up to which the paper compares"
    finding = " / ".join(number(accuracy) for accuracy in accuracies)
    sentence = "On the trace always more accurate than both (Section 7.1, Fig. 5)"
    yield claim(sentence, finding, holds if max(rates) < SHOWN else reason)


SECTIONS = (
    Section(
        "ramsis", "RAMSIS' world: ten constant loads",
        f"{WORKERS} identical workers, {CONSTANT_S} s of Poisson arrivals, an SLO of {SLO_MS} ms, the 26 published "
        "profiles with the 95th percentile as the exact run time of a batch; unlike the prototype's, no run here is "
        "shorter. Accuracies are of ImageNet. Every stack measures the load itself; queries that cannot be in time are "
        f"refused. The least accurate variant alone carries {CAPACITY:,}/s; above what it can meet by its own "
        "expectation `ramsis` runs the fastest variant and drops from the front of a queue.",
        _loads, _load_claims, _prototype, corner="stack", turned=True,
    ),
    Section(
        "ramsis-forms", "Forms of RAMSIS' decision process",
        "The same world. `ramsis-by-models` discretises slack by the times of the models that are not dominated (MD), "
        "the others evenly (FLD); `ramsis-known-load` has a policy for the true load alone, as the paper assumes.",
        _forms, _form_claims, corner="stack", turned=True,
    ),
    Section(
        "ramsis-trace", "RAMSIS' world: the Twitter trace", "The same world on the published trace.",
        _trace, _trace_claims,
    ),
)  # fmt: skip
