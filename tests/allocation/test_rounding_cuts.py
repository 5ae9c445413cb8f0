"""Rounding cuts cut off parts of slices, and no plan of whole ones."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.allocation import nereus
from scheduler.allocation.column_generation import Relaxed
from scheduler.allocation.device_counts import DeviceCounts
from scheduler.allocation.milp_program import Program
from scheduler.allocation.problem import CERTIFIED
from scheduler.allocation.rounding_cuts import REMAINDER, RoundingCut, Served, counts, violated
from scheduler.allocation.solver import Budget
from scheduler.allocation.time_slices import revisit_periods
from scheduler.allocation.verification import violations

from .test_milp import crowded, options_of
from .worlds import published_or_skip

SHARES = st.one_of(st.floats(0.02, 1.0), st.sampled_from((0.25, 1 / 3, 0.5, 2 / 3, 0.75, 1.0)))


@given(st.lists(st.tuples(SHARES, st.integers(0, 6)), max_size=5), SHARES.filter(lambda by: by < 1))
def test_no_whole_slices_serve_more_than_a_cut_permits(slices, by):
    cut = RoundingCut(0, 90.0, by, False)
    if 1 - math.floor(1 / by + 1e-9) * by < REMAINDER:
        return
    served = min(1.0, sum(share * number for share, number in slices))
    assert served <= cut.limit + sum(number * cut.count(share) for share, number in slices) + 1e-6


@given(st.lists(SHARES, min_size=1, max_size=5), SHARES.filter(lambda by: by < 1))
def test_one_slice_counts_as_in_a_table(shares, by):
    cut = RoundingCut(0, 90.0, by, False)
    assert counts(np.array(shares), np.array(by)) == pytest.approx([cut.count(share) for share in shares], abs=1e-6)


def test_one_and_a_half_slices_are_cut_off():
    # Slices that can serve two thirds each: one serves two thirds, and only two serve all.
    (cut,) = violated(3, Served({(90.0, 2 / 3): 1.5}, [(90.0, 1.0)], []))
    assert (cut.q, cut.accuracy, cut.dedicated) == (3, 90.0, False)
    assert cut.limit + 1.5 * cut.count(2 / 3) == pytest.approx(5 / 6)
    assert cut.limit + 2 * cut.count(2 / 3) == pytest.approx(1.0)


def test_whole_slices_are_not_cut_off():
    assert violated(0, Served({(90.0, 2 / 3): 2.0}, [(90.0, 1.0)], [])) == []
    assert violated(0, Served({(90.0, 0.5): 1.0}, [(90.0, 0.5)], [])) == []


def test_dedicated_devices_are_cut_off_with_slices():
    # A dedicated device can serve two thirds, too; a half of it and a slice cannot serve all.
    (cut,) = violated(0, Served({(90.0, 2 / 3): 1.0}, [(90.0, 2 / 3)], [(0.5, [(90.0, 2 / 3, 1 / 3)])]))
    assert cut.dedicated
    assert cut.limit + 1.5 * cut.count(2 / 3) < 1.0


def relaxed_of(problem) -> tuple[Program, Relaxed]:
    options = options_of(problem)
    program = Program(options)
    return program, Relaxed(program, revisit_periods(options.applications), 10**6)


@pytest.mark.parametrize("demand", (14.0, 26.0))
def test_cuts_lower_the_bound_and_change_the_worth_of_no_plan(demand):
    problem = crowded(9, 4, demand)
    program, relaxed = relaxed_of(problem)
    cut_bound = relaxed.bound({}, -math.inf, Budget(60.0))
    uncut_program, uncut = relaxed_of(problem)
    uncut.tighten = lambda: 0
    bound = uncut.bound({}, -math.inf, Budget(60.0))
    assert program.cuts and not uncut_program.cuts
    assert cut_bound < bound
    rng = np.random.default_rng(3)
    contents = [device for _, device in program.contents]
    for _ in range(10):
        counts_ = DeviceCounts(program.options)
        dedicated = np.zeros_like(counts_.dedicated)
        own = rng.integers(0, 3)
        for q in rng.integers(0, 9, size=own):
            dedicated[q, 0] += 1
        counts_.set(dedicated, [contents[i] for i in rng.integers(0, len(contents), size=4 - own)])
        with_cuts, without = program.evaluated(counts_), uncut_program.evaluated(counts_)
        assert with_cuts.value == pytest.approx(without.value, abs=1e-4)
        assert with_cuts.value <= cut_bound + 1e-4


@pytest.mark.parametrize("total", (55.0, 70.0))
def test_plans_of_four_published_devices_are_certified(total):
    problem = published_or_skip(total, {"cpu": 2, "pascal": 1, "ampere": 1})
    plan = nereus.solve(problem)
    assert violations(problem, plan) == []
    assert plan.gap <= CERTIFIED
