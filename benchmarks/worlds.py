"""The cost of a change in small worlds: ``python -m benchmarks worlds``.

Late binding in overload, near saturation and where devices are not what plans assume, and the plan search in a few
sizes; three seeds a world, in at most six minutes of CPU. Solves end by work: no wall clock decides.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from scheduler.allocation import nereus
from scheduler.simulation import simulate
from scheduler.simulation.ablations import PARTS, without
from scheduler.simulation.scenario import Scenario, parse

from .evaluation.ramsis import APPLICATION, COLUMN, KIND, SLO_MS, WORKERS
from .evaluation.ramsis import worlds as ramsis_worlds
from .evaluation.worlds import PROTEUS, REALISTIC
from .figures import Row, markdown
from .problems import problem

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data" / "proteus"
KEPT = ROOT / ".evaluation"
SEEDS = (1, 2, 3)
MIXED = {"cpu": 30, "ampere": 5}
#: SLOs that differ by application; profiles that are wrong by up to this share; one batch in many stalls
SLOS_MS = {"default": 300, "mobilenet": 100, "yolo": 200, "t5": 500, "gpt2": 600}
ERROR = 0.5
STALL_MS, STALL_EVERY = 500, 100
#: queries/s by application in the proportions of the published traces
MIX = {
    "mobilenet": 0.355, "efficientnet": 0.175, "resnest": 0.121, "bert": 0.09, "yolo": 0.07, "densenet": 0.06,
    "resnet": 0.052, "t5": 0.04, "gpt2": 0.037,
}  # fmt: skip


def _generated(seconds: float, **values: Any) -> dict[str, Any]:
    return {"generator": {"kind": "gamma" if "shape" in values else "poisson", "duration_s": seconds, **values}}


def _mixed(total: float) -> dict[str, Any]:
    return {"rates": {name: total * part for name, part in MIX.items()}}


def _trace(name: str) -> dict[str, Any]:
    return {"trace": f"traces/{name}.csv.gz"}


#: what differs from the published world
LATE: dict[str, dict[str, Any]] = {
    "30+5, 800/s": {"devices": MIXED, **_generated(60, qps=800)},
    "30+5, 1,000/s": {"devices": MIXED, **_generated(60, qps=1000)},
    "30+5, mix, 900/s": {"devices": MIXED, **_generated(60, **_mixed(900))},
    "1 device, bursts": {"devices": {"cpu": 1}, **_generated(120, rates={"mobilenet": 60}, shape=0.05)},
    "1 device, unlike SLOs": {
        "devices": {"cpu": 1}, "slo_ms": {"default": 1500, "mobilenet": 150},
        **_generated(120, rates={"mobilenet": 10, "efficientnet": 3}),
    },
    "4 devices": {
        "devices": {"cpu": 2, "pascal": 1, "ampere": 1}, "slo_ms": {"default": 400}, **_generated(120, qps=110),
    },
    "20 GPUs": {"devices": {"pascal": 10, "ampere": 10}, **_generated(60, qps=1350)},
    "20 GPUs, overload": {
        "devices": {"pascal": 10, "ampere": 10}, "profile_noise": 0.05, "network_ms": 1.0, **_generated(60, qps=1700),
    },
    "gamma": {"profile_noise": 0.01, **_trace("zipf_gamma")},
    "unlike SLOs": {"slo_ms": SLOS_MS, **_generated(30, **_mixed(1200))},
    "stalls": {"stall_ms": STALL_MS, "stall_every": STALL_EVERY, **_generated(45, **_mixed(700))},
    "wrong profiles": {"profile_error": ERROR, **_generated(45, **_mixed(700))},
    **{
        f"RAMSIS, {load:,}/s": {
            "profiles": "profiles.csv", "latency": COLUMN, "devices": {KIND: WORKERS}, "slo_ms": {"default": SLO_MS},
            "batches": None, "control": {"initial_qps": load}, **_generated(45, rates={APPLICATION: load}),
        }
        for load in (2000, 3400, 3600)
    },
    **{
        f"loads of 2 s, {name}": {**REALISTIC, "max_resident": dict.fromkeys(PROTEUS["devices"], 3), **_trace(name)}
        for name in ("zipf_exponential", "medium-normal_load")
    },
}  # fmt: skip
#: devices, applications, load
PLANS = ((2, 9, 0.6), (4, 9, 0.6), (8, 9, 0.6), (10, 9, 0.6), (24, 20, 0.6), (8, 9, 1.0), (20, 9, 1.0))
#: seconds of a trace: its peak is in them
TRACE_S = 130.0


@dataclass(frozen=True)
class Figures:
    """One run, in percent; ``gap`` of a plan, ``queries`` of a simulation."""

    violations: float
    accuracy: float
    cpu_s: float
    queries: int = 0
    gap: float | None = None


@cache
def _ramsis_folder() -> Path:
    into = KEPT / "ramsis"
    ramsis_worlds(DATA.parent / "ramsis", into)
    return into


def scenario(name: str, seed: int) -> Scenario:
    values = {**PROTEUS, "name": name, **LATE[name], "seed": seed}
    values = {key: value for key, value in values.items() if value is not None}
    made = parse(values, _ramsis_folder() if name.startswith("RAMSIS") else DATA)
    # Solves end by work; where one ends by this limit, the machine is far too slow.
    made = replace(made, control=replace(made.control, solve_s=60.0))
    if "trace" not in values:
        return made
    arrivals = made.arrivals
    count = sum(at < TRACE_S for at in arrivals.times)
    return replace(
        made, arrivals=replace(arrivals, times=arrivals.times[:count], applications=arrivals.applications[:count])
    )


def _simulated(name: str, seed: int, part: str | None) -> Figures:
    summary = simulate(scenario(name, seed), "nereus", part=part).summary
    return Figures(
        100 * summary["violation_ratio"],
        summary["effective_accuracy"] or 0.0,
        summary["cpu_s"],
        summary["queries"],
    )


def _planned(devices: int, applications: int, load: float, seed: int, part: str | None) -> Figures:
    asked = replace(problem(devices, 6 * applications, applications, seed, load), gap=0.0)
    began = time.process_time()
    with without(part):
        plan = nereus.solve(asked)
    cpu_s = time.process_time() - began
    total, served = sum(a.demand for a in asked.applications), sum(plan.served.values())
    variants = {variant.id: variant for variant in asked.variants}
    rates = [(placement.rate, variants[placement.variant].accuracy) for placement in plan.placements]
    accuracy = sum(rate * accuracy for rate, accuracy in rates) / max(sum(rate for rate, _ in rates), 1e-9)
    return Figures(100 * (1 - served / total), accuracy, cpu_s, gap=100 * plan.gap)


def _run(job: tuple[str, int, str | None]) -> Figures:
    name, seed, part = job
    if name in LATE:
        return _simulated(name, seed, part)
    return _planned(*_plans()[name], seed, part)


def _plans() -> dict[str, tuple[int, int, float]]:
    return {f"plan: {d} devices, {a} applications, {load:g}": (d, a, load) for d, a, load in PLANS}


def names() -> list[str]:
    return [*LATE, *_plans()]


def measure(names: Sequence[str], seeds: Sequence[int], part: str | None, processes: int) -> dict[str, list[Figures]]:
    jobs = [(name, seed, part) for name in names for seed in seeds]
    with ProcessPoolExecutor(processes) as pool:
        figures = list(pool.map(_run, jobs))
    return {name: figures[i * len(seeds) : (i + 1) * len(seeds)] for i, name in enumerate(names)}


def render(table: Mapping[str, list[Figures]], beside: Mapping[str, list[Figures]]) -> str:
    rows: list[Row] = []
    changes = []
    for name, runs in table.items():
        violations, accuracy = [run.violations for run in runs], [run.accuracy for run in runs]
        row = {"world": name, "violations, %": _spread(violations, 3), "accuracy, %": _spread(accuracy, 2)}
        row["gap, %"] = f"{max(run.gap for run in runs):.2f}" if runs[0].gap is not None else ""
        row["queries a CPU s"] = f"{_speed(runs):,.0f}" if runs[0].queries else ""
        if name in beside:
            more = statistics.mean(violations) - statistics.mean(run.violations for run in beside[name])
            better = statistics.mean(accuracy) - statistics.mean(run.accuracy for run in beside[name])
            changes.append((more, better))
            row |= {"violations": f"{more:+.3f}", "accuracy": f"{better:+.2f}"}
        rows.append(row)
    if changes:
        more, better = (statistics.mean(column) for column in zip(*changes, strict=True))
        rows.append(
            {**dict.fromkeys(rows[0], ""), "world": "mean", "violations": f"{more:+.3f}", "accuracy": f"{better:+.3f}"}
        )
    everything = [run for runs in table.values() for run in runs]
    queries, total_s = sum(run.queries for run in everything), sum(run.cpu_s for run in everything)
    speed = _speed([run for run in everything if run.queries])
    return f"{markdown(rows)}\n\n{queries:,} queries, {speed:,.0f} a CPU s; {total_s:.0f} s of CPU in all"


def _speed(runs: Sequence[Figures]) -> float:
    return sum(run.queries for run in runs) / max(sum(run.cpu_s for run in runs), 1e-9)


def _spread(values: Sequence[float], digits: int) -> str:
    return f"{statistics.mean(values):.{digits}f} ± {(max(values) - min(values)) / 2:.{digits}f}"


def _read(path: Path) -> dict[str, list[Figures]]:
    return {name: [Figures(**run) for run in runs] for name, runs in json.loads(path.read_text()).items()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks worlds", description=__doc__.splitlines()[0])
    parser.add_argument("--without", action="append", choices=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--only", action="append", help="worlds whose name contains this; may be given several times")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="seeds a world (default %(default)s)")
    parser.add_argument("--save", type=Path, metavar="FILE.json", help="keep the (first) table")
    parser.add_argument("--beside", type=Path, metavar="FILE.json", help="compare with a table that was kept")
    parser.add_argument("--processes", type=int, default=2, help="runs at a time (default %(default)s)")
    options = parser.parse_args(arguments)
    chosen = [name for name in names() if not options.only or any(text in name for text in options.only)]
    beside = _read(options.beside) if options.beside else {}
    for part in options.without or [None]:
        table = measure(chosen, range(1, options.seeds + 1), part, options.processes)
        if options.save:
            kept = {name: [vars(run) for run in runs] for name, runs in table.items()}
            options.save.write_text(json.dumps(kept, indent=1))
        if part is not None:
            print(f"\nWithout {part}:")
        print(render(table, beside))
