"""The MILP of `nereus` over device counts.

Identical devices are counted, and may be shared in time slices.

Integers: n[q,g], devices of group g dedicated to application q, and one count for each content that a shared device may
have (:mod:`.contents`). Continuous: x[q,g,m], the time of dedicated devices that goes to variant m, y[q,m], the share
of the demand that variant m serves in slices, and s, the share of the weighted demand that is served.

    sum_q n + contents <= devices of g;  sum_m x <= n;  sum_m x * rate / demand <= n  (no device serves more than all);
    y[q,m] <= sum over contents of min(1, slice rate / demand);  all that is served of q <= 1;
    floors may lack what the start lacks of them, in sum and weighted.

Maximised: :data:`~.group_options.SERVED` * s + the weighted accuracy of what is served. The relaxation over all
contents bounds every plan (:mod:`.column_generation`). Exchanges of single devices improve the search's plan, and the
relaxation rounded (:mod:`.exchanges`). SCIP solves the MILP over the most promising contents, from the best of these;
where that leaves more than :data:`CERTIFIED`, branch and price closes it (:mod:`.branch_and_price`; Barnhart et al.
1998). Rounding cuts (:mod:`.rounding_cuts`) make the relaxation tight on few devices.

Where not all is served, two bounds are sought: of the objective, which bounds how much can be served, and of accuracy
at what the plan serves, where more than that does not count (s is limited).

Limits count work, steps and nodes, so that equal problems get equal plans on every machine; live, time is limited,
too (:attr:`~.problem.Problem.milp_s`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .branch_and_price import branch_and_price
from .column_generation import Relaxed
from .device_counts import DeviceCounts
from .exchanges import Exchanges, wanted
from .group_options import SERVED, GroupOptions
from .milp_program import INFINITE, Evaluated, Program
from .problem import CERTIFIED
from .solver import Budget, time_ran_out

#: Part of the certified gap that the MILP must leave: rounding takes the rest.
CLOSED = 0.9
#: Relative gap of the points at which SCIP stops.
SCIP_GAP = 2e-4
#: Slices priced for the relaxation and in the branches of a pass, linear programs among them (about 0.4 s of work).
PRICED, PRICED_IN_BRANCHES = 60_000, 80_000
#: Slices priced for exchanges (up to 1 s of work).
EXCHANGED = 100_000
#: Exchanges that gained nothing, one after the other, after which they end: where the plan is certified or exchanges
#: were made before, and where not.
STALE, STALE_OPEN = 4, 12
#: Most contents in SCIP's model besides its start's; fewer where the start is certified.
IN_SCIP, IN_SCIP_CERTIFIED = 100, 50
#: Slices of all groups and revisit periods beyond which the relaxation does not converge in this work: then nothing is
#: split, and SCIP is not asked.
LARGEST = 3_000
#: Slices beyond which a model is too large for a bound, and slices priced for such a bound.
LARGEST_BOUNDED, PRICED_FOR_BOUND = 6_000, 220_000
#: Devices beyond which no branches are tried: each takes longer, and closes little that SCIP leaves.
BRANCHED = 32
#: Rounds of branching, with exchanges between them; another one only where the bound is not further from enough than
#: this many times the gap that is.
PASSES, NEAR = 2, 1.0
#: Share of the demand that may be missing where all is served.
EXACT = 1e-6
#: Relative gain of a plan that is better.
PRECISION = 1e-9


@dataclass(frozen=True, eq=False)
class MilpPlan:
    """The MILP's counts, and bounds for plans.

    The bounds are of any plan that serves as much of all floors together (weighted) as the start.

    Attributes:
        counts: at least as good as the start.
        bound: weighted items/s times (accuracy + SERVED).
        limited: the same, where more than ``counted`` weighted items/s served only count by their accuracy.
    """

    counts: DeviceCounts
    bound: float
    limited: float
    counted: float


def improve(
    start: DeviceCounts, periods: Sequence[float], gap: float, seconds: float | None, known: float = math.inf
) -> MilpPlan | None:
    """Improve ``start`` by the MILP.

    Args:
        periods: revisit periods that shared devices may have, seconds.
        gap: relative gap of the points at which the start needs no better plan.
        seconds: time limit; None: none but those of work, steps and nodes.
        known: a bound, in the counts' units.

    Returns:
        The MILP's plan; None where the model would be too large, or a linear program of the start has no optimum. A
        large model only bounds a start that ``known`` does not certify, on few devices after exchanges.
    """
    budget = Budget(math.inf if seconds is None else seconds)
    program = Program(start.options)
    program.allow_short_floors(start)
    first = program.evaluated(start)
    if first is None:
        return None
    # Known before the relaxation is set up, which takes seconds and gigabytes for a hundred thousand slices.
    size = _slices(start.options, periods)
    if size > LARGEST_BOUNDED:
        return None
    relaxed = Relaxed(program, periods, PRICED)
    solve = _Solve(relaxed, start, first, budget, size <= LARGEST)
    if solve.converges:
        solve.run(gap)
    elif start.value >= known - gap * first.points * program.total:
        return None
    else:
        relaxed.work = PRICED_FOR_BOUND
        solve.improve_start(gap)
    total = program.total
    return MilpPlan(solve.plan, solve.bound * total, solve.limited * total, solve.counted * total)


def _slices(options: GroupOptions, periods: Sequence[float]) -> int:
    """Slices of all groups and revisit periods."""
    shared = [g for g, group in enumerate(options.groups) if group.one.max_resident != 1]
    return sum(len(options.slices(g, revisit_s).slices) for g in shared for revisit_s in periods)


class _Solve:
    """The best plan so far, ``at`` its values.

    Attributes:
        branches: plans may be split.
        converges: the relaxation is small enough to converge.
    """

    def __init__(self, relaxed: Relaxed, start: DeviceCounts, first: Evaluated, budget: Budget, converges: bool):
        self._relaxed, self._budget, self.converges = relaxed, budget, converges
        self.plan, self.at = start, first
        self.bound = self.limited = math.inf
        self.counted = 1.0
        options = start.options
        devices = sum(len(group) for group in options.groups)
        self.branches = devices <= BRANCHED
        self._least = min(v.accuracy for a in options.applications for v in options.variants(a.id))

    def improve_start(self, gap: float) -> None:
        """Bound all plans by the relaxation, and improve the start by exchanges."""
        found = self._relaxed.bound({}, self.at.value + gap * self.at.points, self._budget)
        self.bound = min(self.bound, found)
        if not self._near(gap) and (self.branches or self.converges):
            self._exchange(gap)

    def run(self, gap: float) -> None:
        """Solve the MILP, and bound all plans by branches."""
        for _ in range(PASSES):
            self._relaxed.work = PRICED
            self.improve_start(gap)
            if self._certified(self.bound) or self._relaxed.work > 0:
                break
        if self._near(gap):
            return
        self._plan_of_scip()
        if self.at.served < 1 - EXACT:
            # At most so much more may be served; how accurately is bounded apart.
            self.bound = self._closed(self.bound, self._serves_enough)
            if self._certified(self.bound):
                return
            self.counted = self.at.served
            self._relaxed.count_served(self.counted)
            self._relaxed.work = PRICED
            self.limited = self._relaxed.bound({}, self._enough(), self._budget)
            self.limited = self._closed(self.limited, self._enough)
        else:
            self.bound = self._closed(self.bound, self._enough)

    def _exchange(self, gap: float, again: bool = False) -> None:
        """Improve the plan by exchanges, from itself and from the relaxation rounded.

        Args:
            gap: at which exchanges end once they gain nothing.
            again: exchanges were made before.
        """
        exchanges = Exchanges(self._relaxed, EXCHANGED, self._budget)
        uses = wanted(self._relaxed)
        counts = self.plan.copy()
        stale = 0
        while exchanges.work > 0 and not self._near(SCIP_GAP):
            if self._budget.left() <= 0:
                time_ran_out()
                break
            before = self.at.value
            exchanges.improve(counts)
            self._take(counts)
            stale = 0 if self.at.value > before else stale + 1
            if stale >= (STALE if again or self._certified(self.bound) else STALE_OPEN) or (stale and self._near(gap)):
                break
            counts = exchanges.rounded(uses)

    def _near(self, gap: float) -> bool:
        return self.bound - self.at.value <= gap * self.at.points

    def _worth(self) -> float:
        """The plan's worth where no more than ``counted`` counts as served."""
        return self.at.points + SERVED * min(self.at.served, self.counted)

    def _enough(self) -> float:
        return self._worth() + CLOSED * CERTIFIED * self.at.points

    def _serves_enough(self) -> float:
        """The bound at which hardly more can be served, whatever its accuracy."""
        return max(self._enough(), (SERVED + self._least) * self.at.served * (1 + CLOSED * CERTIFIED))

    def _certified(self, bound: float) -> bool:
        return bound <= self._enough()

    def _closed(self, bound: float, enough: Callable[[], float]) -> float:
        """Return a bound that is ``enough``, or as near to it as the passes come.

        The plan may improve meanwhile.
        """
        for n in range(PASSES):
            if not self.branches or bound <= enough() or self._budget.left() <= 0:
                break
            if n:
                if bound - enough() > NEAR * (enough() - self._worth()):
                    break
                self._exchange(SCIP_GAP, again=True)
            self._relaxed.work = PRICED_IN_BRANCHES
            bound = min(bound, branch_and_price(self._relaxed, bound, enough, self._take, self._budget))
        return bound

    def _take(self, counts: DeviceCounts) -> None:
        """Take the counts if they are better."""
        if counts.value <= self.plan.value * (1 + PRECISION):
            return
        evaluated = self._relaxed.program.evaluated(counts)
        if evaluated is not None:
            self.plan, self.at = counts, evaluated

    def _plan_of_scip(self) -> None:
        """SCIP's plan over the contents found, if it is better."""
        program, start = self._relaxed.program, self.at
        values = program.evaluated(self.plan).values
        contents = self._relaxed.promising(IN_SCIP_CERTIFIED if self._certified(self.bound) else IN_SCIP)
        contents.update(column for column, _ in program.contents if values[column] > 0)
        model, variables = program.model(contents)
        model.setParam("limits/time", min(max(self._budget.left(), 0.01), INFINITE))
        model.setParam("limits/absgap", SCIP_GAP * start.points)
        solution = model.createSol()
        for variable, value in zip(variables, values, strict=True):
            model.setSolVal(solution, variable, value)
        # The model may reject it because of rounding; the solve then starts without one.
        model.addSol(solution)
        # Without the interpreter's lock, so that other threads of the process go on.
        model.optimizeNogil()
        if model.getStatus() == "timelimit":
            time_ran_out()
        if model.getNSols() > 0:
            best = model.getBestSol()
            self._take(program.counts([model.getSolVal(best, variable) for variable in variables]))
