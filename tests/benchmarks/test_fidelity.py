"""The simulated half: what was served, made a scenario."""

from __future__ import annotations

import math

import pytest

from benchmarks.fidelity import ACCURACIES, DEVICES, Live, Row, Simulated, chosen, one_box, rates, render, scenario
from scheduler.simulation import ScenarioError, simulate
from scheduler.simulation.arrivals import Generator, Trace
from workers.dispatch.latency import LatencyModel

pytestmark = pytest.mark.wide

WANTED = chosen()
NAMES = tuple(application.name for application in WANTED)
KNOWN = {
    (application.name, variant.name): LatencyModel([(1, 0.008 * (rank + 1)), (4, 0.02 * (rank + 1))])
    for application in WANTED
    for rank, variant in enumerate(application.variants)
}


def ratios(*values: float) -> dict[str, tuple[float, ...]]:
    return {f"{application}/{variant}": values for application, variant in KNOWN}


def test_the_load_is_what_the_most_accurate_variants_need_alone():
    for slowdown in (1.0, 1.5):
        found = rates(one_box(KNOWN, {}, 0.0), WANTED, 0.6, slowdown)
        need = sum(found[a.name] * KNOWN[a.name, a.variants[-1].name].seconds(1) * slowdown for a in WANTED)
        assert need / DEVICES == pytest.approx(0.6)


def test_variants_have_names_of_their_own_and_accuracies_far_apart():
    variants = [variant for application in WANTED for variant in application.variants]
    assert len({variant.name for variant in variants}) == len(variants)
    assert [[v.accuracy for v in a.variants] for a in WANTED] == [list(ACCURACIES)] * len(WANTED)


def test_a_lone_query_takes_the_way_and_its_run():
    way, slower = 0.004, 1.5
    arrivals = Trace(NAMES, (1.0,), (0,))
    summary = simulate(scenario(WANTED, arrivals, one_box(KNOWN, ratios(slower), way), 1), "nereus").summary
    best = KNOWN[NAMES[0], WANTED[0].variants[-1].name]
    assert (summary["in_time"], summary["effective_accuracy"]) == (1, 100)
    least_ms = (way + slower * best.seconds(1)) * 1000
    # It may wait for company, but no longer than it runs.
    assert least_ms <= summary["median_latency_ms"] <= 2 * least_ms + 5


def test_simulated_devices_are_as_slow_as_the_real_ones():
    sent = Generator("poisson", 20.0, rates(one_box(KNOWN, {}, 0.0), WANTED, 0.6, 1.0)).arrivals(NAMES, 3)
    found = [
        simulate(scenario(WANTED, sent, one_box(KNOWN, ratios(slower), 0.002), 3), "nereus").summary
        for slower in (0.5, 1.0, 2.0)
    ]
    accuracies = [summary["effective_accuracy"] for summary in found]
    assert accuracies == sorted(accuracies, reverse=True) and accuracies[0] > accuracies[-1] + 1
    assert all(summary["queries"] == len(sent) for summary in found)


def test_the_same_run_times_are_drawn_again():
    sent = Generator("poisson", 5.0, rates(one_box(KNOWN, {}, 0.0), WANTED, 0.6, 1.0)).arrivals(NAMES, 3)
    one, other, another = (
        simulate(scenario(WANTED, sent, one_box(KNOWN, ratios(0.5, 1.0, 1.9), 0.002), seed), "nereus")
        for seed in (3, 3, 4)
    )
    assert one.summary["p99_latency_ms"] == other.summary["p99_latency_ms"] != another.summary["p99_latency_ms"]


@pytest.mark.parametrize("wrong", [(), (0.0,), (-1.0, 1.0), (math.nan,), (math.inf,)])
def test_run_times_that_cannot_be_are_refused(wrong):
    broken = scenario(WANTED, Trace(NAMES, (1.0,), (0,)), one_box(KNOWN, {"digits/digits-wide": wrong}, 0.0), 1)
    with pytest.raises(ScenarioError, match=r"run_ratios\.digits/digits-wide: must be"):
        simulate(broken, "nereus")


def test_the_page_tells_every_repetition_and_the_medians():
    def row(live_violations: float, live_accuracy: float | None) -> Row:
        live = Live(100, live_violations, live_accuracy, 20.0, 1.1, {}, 2.0)
        return Row(0.6, live, Simulated(0.01, 98.0, 21.0), 2.5)

    page = render([row(0.012, 98.5), row(0.03, 99.0), row(0.01, None)])
    assert page.count("| 60% |") == 3 and "|  |" in page
    assert "median of 3: violations 0.20 points apart, accuracy 1.00 points" in page
