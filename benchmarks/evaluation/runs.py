"""Runs of the evaluation: in a few processes, with results that are kept.

Each result is kept by a hash of all that it depends on.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from scheduler.simulation import ScenarioError, SimulationError, simulate, stacks
from scheduler.simulation.seconds import Second
from scheduler.stacks.registry import PAPERS
from workers.dispatch.stack import LATE

from .source import source_digest
from .worlds import World

#: paths of the source that only runs depend on that bind late
LATE_SOURCES = ("workers/dispatch/late/", "scheduler/simulation/late.py")


class SourceChanged(RuntimeError):
    """The code was edited during the evaluation.

    Results would be kept under the wrong key.
    """


@dataclass(frozen=True)
class Case:
    """One run. A value of None comes from the strategy."""

    world: World
    strategy: str
    batching: str | None = None
    routing: str | None = None

    def seeds(self) -> list[Case]:
        """The runs by each seed of its world."""
        return [replace(self, world=world) for world in self.world.seeds()]

    def missing(self) -> str | None:
        """The reason why this case cannot be run here; None: it can.

        A name is not registered, or names do not go together.
        """
        try:
            stacks.choose(self.strategy, self.batching, self.routing)
        except ScenarioError as error:
            names = ":".join(filter(None, (self.strategy, self.batching, self.routing)))
            return f"`{names}` ({'; '.join(error.faults)})"
        return None

    def unused(self) -> tuple[str, ...]:
        """Paths of the source that this run does not depend on."""
        stack = stacks.choose(self.strategy, self.batching, self.routing)
        unused: tuple[str, ...] = () if stack.binding == LATE else LATE_SOURCES
        others = (
            f"scheduler/stacks/{name}/" for name, paper in PAPERS.items() if stack.strategy not in paper.strategies
        )
        return (*unused, *others)

    def key(self, source: str) -> str:
        """Return the name of this run's result.

        Args:
            source: :func:`.source_digest` without the paths that are :meth:`unused`.
        """
        stack = stacks.choose(self.strategy, self.batching, self.routing)
        parts = [self.world.digest(), stack.strategy, stack.batching, stack.routing, source]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    def __str__(self) -> str:
        name = json.loads(self.world.values).get("name", "")
        return f"{name}: " + ":".join(filter(None, (self.strategy, self.batching, self.routing)))


@dataclass(frozen=True)
class Outcome:
    """A finished run, or several that differ by their seed.

    Attributes:
        summary: as in summary.json; counts of several runs are added up, other figures are means.
        seconds: of all runs.
        spread: by figure, half of its range over the seeds; empty for one run.
    """

    summary: Mapping[str, Any]
    seconds: list[Second]
    spread: Mapping[str, float] = field(default_factory=dict)


#: figures of a summary that are added up
COUNTS = ("queries", "in_time", "late", "dropped", "solves_cut_short")


def pooled(outcomes: Sequence[Outcome]) -> Outcome:
    """One outcome of runs that differ by seed; by application it is the first's."""
    if len(outcomes) == 1:
        return outcomes[0]
    summary, spread = dict(outcomes[0].summary), {}
    for key, value in summary.items():
        each = [one.summary[key] for one in outcomes if isinstance(one.summary[key], int | float)]
        if len(each) == len(outcomes) and not isinstance(value, bool):
            summary[key] = sum(each) if key in COUNTS else type(value)(sum(each) / len(each))
            spread[key] = (max(each) - min(each)) / 2
    return Outcome(summary, [second for one in outcomes for second in one.seconds], spread)


class Runner:
    """Runs cases that have no result yet and keeps what came of them in ``folder``.

    Args:
        processes: at most this many runs at a time.
    """

    def __init__(self, folder: Path, processes: int = 2):
        self.folder = folder
        self.source = source_digest()
        #: why a case has no result, by case
        self.failed: dict[Case, str] = {}
        #: how many runs this object has made, as opposed to found
        self.made = 0
        self._processes = processes
        #: digests of the source without its unused parts
        self._digests: dict[tuple[str, ...], str] = {}

    def run(self, cases: Iterable[Case]) -> None:
        """Have a result for each case, or a reason why not in ``failed``.

        Raises:
            SourceChanged: the code changed since this object was made.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        # Nothing in here is for the repository, whichever folder it is.
        (self.folder / ".gitignore").write_text("*\n")
        due = {}
        for case in dict.fromkeys(one for each in cases for one in each.seeds()):
            if case.missing() is None and case not in self.failed and self._outcome(case) is None:
                due.setdefault(self.key(case), case)
        if not due:
            return
        # Not forked: a child must import the code as it is now, not share this process's solver.
        context = multiprocessing.get_context("spawn")
        with (
            ProcessPoolExecutor(self._processes, context, _same_source, (self.source,)) as pool,
            tqdm(total=len(due), file=sys.stderr, disable=None, unit="run") as bar,
        ):
            waiting = {pool.submit(_make, case, self._path(key)): case for key, case in due.items()}
            try:
                for future in as_completed(waiting):
                    reason = future.result()
                    case = waiting[future]
                    self.made += reason is None
                    if reason is not None:
                        self.failed[case] = reason
                    bar.update()
                    if bar.disable:
                        print(f"{case}{'' if reason is None else f' failed: {reason}'}", file=sys.stderr, flush=True)
            except BrokenProcessPool as error:
                self._same()
                raise RuntimeError(
                    f"a process of the evaluation ended by itself, out of memory perhaps: {error}"
                ) from None
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        self._same()

    def key(self, case: Case) -> str:
        """The name of the case's result with the source as it is."""
        unused = case.unused()
        if unused not in self._digests:
            self._digests[unused] = source_digest(without=unused)
        return case.key(self._digests[unused])

    def digest(self, cases: Iterable[Case]) -> str:
        """Changes with all that the results of these cases depend on."""
        keys = {str(one) if one.missing() else self.key(one) for case in cases for one in case.seeds()}
        return hashlib.sha256(json.dumps(sorted(keys)).encode()).hexdigest()

    def _same(self) -> None:
        if source_digest() != self.source:
            raise SourceChanged("the source of scheduler/ or workers/ changed during the evaluation; start it again")

    def outcome(self, case: Case) -> Outcome | None:
        """The kept results of all seeds; None where one is missing."""
        if case.missing() is not None:
            return None
        found = [self._outcome(one) for one in case.seeds()]
        return None if None in found else pooled(found)

    def why(self, case: Case) -> str | None:
        """Why a run of the case failed; None: none did."""
        return next((why for one in case.seeds() if (why := self.failed.get(one)) is not None), None)

    def _outcome(self, case: Case) -> Outcome | None:
        try:
            kept = json.loads(self._path(self.key(case)).read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return Outcome(kept["summary"], [Second(*line) for line in kept["per_second"]])

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"


def _same_source(source: str) -> None:
    """In each process, once the code is imported."""
    if source_digest() != source:
        raise SourceChanged


def _make(case: Case, path: Path) -> str | None:
    """Run a case in a process of its own, and keep its result.

    Returns:
        Why there is no result; None where there is one.
    """
    try:
        results = simulate(case.world.scenario(), case.strategy, case.batching, case.routing)
    except (ScenarioError, SimulationError) as error:
        return str(error)
    except Exception as error:
        # A defect of one stack: the page tells of it, and the other runs go on.
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    kept = {
        # Other work on the same cores makes solves and simulations slower.
        "summary": {**results.summary, "load_average": os.getloadavg()[0]},
        "per_second": [
            (s.second, s.arrived, s.in_time, s.late, s.dropped, s.effective_accuracy) for s in results.per_second
        ],
    }
    # Another process may be killed here, or look for the file: it is there wholly or not at all.
    aside = path.with_suffix(f".{os.getpid()}")
    aside.write_text(json.dumps(kept))
    os.replace(aside, path)
    return None
