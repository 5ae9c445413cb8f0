"""Generated arrivals: their rates, their spread, their bursts, and their seeds."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler.simulation.arrivals import GeneratedBurst, Generator, read_generator
from scheduler.simulation.tables import Table

NAMES = ("a", "b")


def gaps(generator: Generator) -> np.ndarray:
    return np.diff(generator.arrivals(("a",), 1).times)


@pytest.mark.parametrize("kind", ["uniform", "poisson", "gamma"])
def test_the_rate_is_what_was_asked_for_and_arrivals_ascend(kind):
    arrivals = Generator(kind, 200, {"a": 40.0, "b": 10.0}, shape=0.5).arrivals(NAMES, 7)
    assert arrivals.times == sorted(arrivals.times) and arrivals.times[0] >= 0 and arrivals.times[-1] < 200
    counts = np.bincount(arrivals.applications)
    assert counts == pytest.approx([8000, 2000], rel=0.08)


def test_gaps_spread_as_their_kind_says():
    spread = {}
    for kind in ("uniform", "poisson", "gamma"):
        found = gaps(Generator(kind, 1000, {"a": 20.0}, shape=0.05))
        spread[kind] = found.std() / found.mean()
    assert spread["uniform"] == pytest.approx(0, abs=1e-6)
    assert spread["poisson"] == pytest.approx(1, rel=0.05)
    assert spread["gamma"] == pytest.approx(0.05**-0.5, rel=0.15)


def test_a_burst_multiplies_the_rate_while_it_lasts():
    times = np.array(
        Generator("poisson", 100, {"a": 50.0}, bursts=(GeneratedBurst(40, 10, 4),)).arrivals(("a",), 1).times
    )
    inside = ((times >= 40) & (times < 50)).sum()
    assert inside == pytest.approx(2000, rel=0.1) and len(times) - inside == pytest.approx(4500, rel=0.1)


def test_a_burst_of_factor_nought_is_silence():
    times = np.array(
        Generator("uniform", 30, {"a": 10.0}, bursts=(GeneratedBurst(10, 10, 0),)).arrivals(("a",), 1).times
    )
    assert not ((times > 10) & (times < 20)).any() and len(times) == pytest.approx(200, abs=2)


def test_a_seed_says_everything_and_applications_do_not_disturb_each_other():
    generator = Generator("poisson", 20, {"a": 30.0, "b": 5.0})
    louder = Generator("poisson", 20, {"a": 60.0, "b": 5.0})
    assert generator.arrivals(NAMES, 1) == generator.arrivals(NAMES, 1)
    assert generator.arrivals(NAMES, 1) != generator.arrivals(NAMES, 2)
    of_b = [
        [t for t, q in zip(found.times, found.applications, strict=True) if q == 1]
        for found in (generator.arrivals(NAMES, 1), louder.arrivals(NAMES, 1))
    ]
    assert of_b[0] == of_b[1]


def test_zipf_splits_the_rate_by_rank():
    faults: list[str] = []
    table = Table({"kind": "poisson", "duration_s": 1, "qps": 33, "zipf": 1}, "generator", faults)
    rates = read_generator(table, ("a", "b", "c")).rates
    assert not faults and rates == pytest.approx({"a": 18, "b": 9, "c": 6})
