"""Runs of the evaluation, kept by a hash of all that they depend on."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tqdm import tqdm

from scheduler.simulation import ScenarioError, SimulationError, simulate, stacks
from scheduler.simulation.seconds import Second

from .worlds import World

ROOT = Path(__file__).resolve().parents[2]
#: folders whose modules decide about a result, and the library that does
FOLDERS = ("scheduler", "workers")
SOLVER = "pyscipopt"
#: figures of a summary that are added up over seeds
COUNTS = ("queries", "in_time", "late", "dropped", "solves", "solves_cut_short")


def source_digest(root: Path = ROOT) -> str:
    digest = hashlib.sha256(version(SOLVER).encode())
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Case:
    """One run. A value of None comes from the strategy."""

    world: World
    strategy: str
    batching: str | None = None

    def seeds(self) -> list[Case]:
        return [replace(self, world=world) for world in self.world.seeds()]

    def key(self, source: str) -> str:
        stack = stacks.choose(self.strategy, self.batching)
        parts = [self.world.digest(), stack.strategy, stack.batching, stack.routing, source]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    def __str__(self) -> str:
        name = json.loads(self.world.values).get("name", "")
        return f"{name}: " + ":".join(filter(None, (self.strategy, self.batching)))


@dataclass(frozen=True)
class Outcome:
    """A finished run, or several that differ by their seed.

    Attributes:
        summary: as in summary.json; counts of several runs are added up, other figures are means.
        spread: by figure, half of its range over the seeds; empty for one run.
        violations: 0 to 1; accuracy: percent, over queries in time, 0 where none was.
        drop: the largest drop of accuracy over 10 s, in points.
        throughput: queries/s answered in time, over the whole run.
    """

    summary: Mapping[str, Any]
    seconds: list[Second]
    spread: Mapping[str, float] = field(default_factory=dict)

    violations = property(lambda self: self.summary["violation_ratio"])
    accuracy = property(lambda self: self.summary["effective_accuracy"] or 0.0)
    drop = property(lambda self: self.summary["max_accuracy_drop_10s"] or 0.0)
    throughput = property(lambda self: self.summary["in_time"] / max(self.summary["duration_s"], 1e-9))


def pooled(outcomes: Sequence[Outcome]) -> Outcome:
    """One outcome of runs that differ by seed; by application it is the first's."""
    if len(outcomes) == 1:
        return outcomes[0]
    summary, spread = dict(outcomes[0].summary), {}
    for key, value in summary.items():
        each = [run.summary[key] for run in outcomes if isinstance(run.summary[key], int | float)]
        if len(each) == len(outcomes) and not isinstance(value, bool):
            summary[key] = sum(each) if key in COUNTS else type(value)(sum(each) / len(each))
            spread[key] = (max(each) - min(each)) / 2
    return Outcome(summary, [second for run in outcomes for second in run.seconds], spread)


class Runner:
    """Runs cases that have no result yet, some at a time, and keeps what came of them in ``folder``."""

    def __init__(self, folder: Path, processes: int = 2):
        self.folder = folder
        self.source = source_digest()
        #: why a case has no result, by case
        self.failed: dict[Case, str] = {}
        #: how many runs this object has made, as opposed to found
        self.made = 0
        self.processes = processes

    def run(self, cases: Iterable[Case]) -> None:
        """Have a result for each case, or a reason why not in ``failed``."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # Nothing in here is for the repository, whichever folder it is.
        (self.folder / ".gitignore").write_text("*\n")
        due = {case.key(self.source): case for each in cases for case in each.seeds() if self._outcome(case) is None}
        if not due:
            return
        # Not forked: a child must import the code as it is now, not share this process's solver.
        context = multiprocessing.get_context("spawn")
        with (
            ProcessPoolExecutor(self.processes, context) as pool,
            tqdm(total=len(due), file=sys.stderr, disable=None, unit="run") as bar,
        ):
            waiting = {pool.submit(_make, case, self._path(case), self.source): case for case in due.values()}
            try:
                for future in as_completed(waiting):
                    case, reason = waiting[future], future.result()
                    self.made += reason is None
                    if reason is not None:
                        self.failed[case] = reason
                    bar.update()
                    if bar.disable:
                        print(f"{case}{'' if reason is None else f' failed: {reason}'}", file=sys.stderr, flush=True)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def outcome(self, case: Case) -> Outcome | None:
        """The kept results of all seeds; None where one is missing."""
        results = [self._outcome(run) for run in case.seeds()]
        return None if None in results else pooled(results)

    def why(self, case: Case) -> str | None:
        return next((self.failed[run] for run in case.seeds() if run in self.failed), None)

    def _outcome(self, case: Case) -> Outcome | None:
        try:
            result = json.loads(self._path(case).read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return Outcome(result["summary"], [Second(*line) for line in result["per_second"]])

    def _path(self, case: Case) -> Path:
        return self.folder / f"{case.key(self.source)}.json"


def _make(case: Case, path: Path, source: str) -> str | None:
    """Run a case in a process of its own, and keep its result; why there is none, or None."""
    try:
        results = simulate(case.world.scenario(), case.strategy, case.batching)
    except (ScenarioError, SimulationError) as error:
        return str(error)
    except Exception as error:
        # A defect of one stack: the page tells of it, and the other runs go on.
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    if source_digest() != source:
        return "the source of scheduler/ or workers/ changed meanwhile"
    per_second = [(s.second, s.arrived, s.in_time, s.late, s.dropped, s.effective_accuracy) for s in results.per_second]
    # Another process may be killed here, or look for the file: it is there wholly or not at all.
    aside = path.with_suffix(f".{os.getpid()}")
    aside.write_text(json.dumps({"summary": results.summary, "per_second": per_second}))
    os.replace(aside, path)
    return None
