"""The benchmark of several gateways: no query is lost, and what decision 15 says of it holds."""

from __future__ import annotations

import pytest

from benchmarks.gateways.__main__ import TWO
from benchmarks.gateways.made import run
from benchmarks.gateways.run import EARLY, LATE, World

WORLD = World("small", TWO, 2)


@pytest.mark.parametrize("stack", [*LATE, EARLY])
@pytest.mark.parametrize("gateways", [1, 3])
def test_every_query_ends_once_even_beyond_the_capacity(stack, gateways):
    outcome = run(WORLD, gateways, 1.5, stack, seconds=2, seed=5).go()
    assert outcome.in_time + outcome.late + outcome.refused == outcome.sent > 900
    assert outcome.in_time > 0 and outcome.refused > 0


def test_a_run_is_drawn_the_same_again():
    assert run(WORLD, 2, 0.8, EARLY, 2, 3).go() == run(WORLD, 2, 0.8, EARLY, 2, 3).go()
    assert run(WORLD, 2, 0.8, EARLY, 2, 3).go() != run(WORLD, 2, 0.8, EARLY, 2, 4).go()


def test_holding_in_two_places_breaks_what_binding_early_keeps():
    lone, held, early = (run(WORLD, n, 0.7, stack, 8, 0).go() for n, stack in ((1, LATE[0]), (2, LATE[0]), (2, EARLY)))
    assert lone.violations < 1 and early.violations < 2
    assert held.violations > 10


def test_the_rates_of_the_plan_serve_the_load_with_what_is_most_accurate():
    for rate in (10.0, 60.0, 120.0, 165.0):
        rates = WORLD.rates(rate)
        assert sum(rates.values()) == pytest.approx(rate / 0.95)
        assert (
            sum(r * (0.02 + 0.02 * 8) / 8 if i == 0 else r * (0.005 + 0.005 * 8) / 8 for i, r in rates.items())
            <= 1.0001
        )
