"""Run times in executors' metrics become a distribution for simulations."""

from __future__ import annotations

import random
import statistics

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from benchmarks import runtimes
from benchmarks.fidelity import BATCHES, slowdowns
from workers.dispatch.latency import LatencyModel

pytestmark = pytest.mark.wide

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


class Executors:
    """Histograms as executors keep them."""

    def __init__(self):
        self._registry = CollectorRegistry()
        labels = ("device", "variant")
        self._runs = Histogram(runtimes.METRIC, "Run times.", labels, registry=self._registry, buckets=BOUNDS)

    def ran(self, device: str, variant: str, seconds: float) -> None:
        self._runs.labels(device, variant).observe(seconds)

    def page(self) -> str:
        return generate_latest(self._registry).decode()


def test_batches_of_all_devices_are_counted_and_earlier_ones_left_out():
    executors = Executors()
    executors.ran("a", "small", 0.004)
    before = runtimes.read(executors.page())
    executors.ran("a", "small", 0.008)
    executors.ran("b", "small", 0.03)
    executors.ran("b", "large", 9.0)
    after = runtimes.read(executors.page())
    small = after["small"].since(before["small"])
    assert (small.batches, small.sum_s) == (2, pytest.approx(0.038))
    assert {bound: count for bound, count in small.counts.items() if count} == {0.01: 1, 0.05: 1}
    assert {bound: count for bound, count in after["large"].counts.items() if count} == {float("inf"): 1}
    assert after["large"].since(before.get("large")) == after["large"]


@pytest.mark.parametrize("sigma", [0.1, 0.3, 0.6])
@pytest.mark.parametrize("slower", [0.8, 1.0, 1.7])
def test_mean_and_spread_of_run_times_are_found_again(sigma, slower):
    draw, executors = random.Random(f"{sigma}:{slower}"), Executors()
    profiled = [(0.009, 400.0), (0.021, 150.0), (0.044, 50.0)]
    all_ratios = []
    for seconds, batches in profiled:
        for _ in range(int(batches)):
            all_ratios.append(slower * draw.lognormvariate(0.0, sigma))
            executors.ran("a", "v", seconds * all_ratios[-1])
    found = runtimes.ratios(profiled, runtimes.read(executors.page())["v"])
    assert list(found) == sorted(found)
    assert statistics.fmean(found) == pytest.approx(statistics.fmean(all_ratios), rel=0.05)
    for place, part in ((9, 0.1), (49, 0.5), (89, 0.9)):
        observed = sorted(all_ratios)[int(part * len(all_ratios))]
        assert found[place] == pytest.approx(observed, rel=0.15)


def test_the_mean_is_what_the_sums_say():
    took = runtimes.RunTimes({0.01: 30.0, 0.1: 10.0}, 0.6)
    assert statistics.fmean(runtimes.ratios([(0.01, 40.0)], took)) == pytest.approx(0.6 / 0.4)


def test_of_nothing_nothing_is_said():
    with pytest.raises(ValueError, match="no batch ran"):
        runtimes.ratios([], runtimes.RunTimes({}, 0.0))


def test_a_variant_that_hardly_ran_is_as_slow_as_the_others():
    executors = Executors()
    answers = []
    for _ in range(4 * BATCHES):
        executors.ran("a", "much", 0.02)
        answers += [("q", "much", 2)] * 2
    executors.ran("a", "rare", 0.5)
    answers.append(("q", "rare", 1))
    known = {("q", name): LatencyModel([(1, 0.005), (2, 0.01)]) for name in ("much", "rare", "never")}
    mean, found = slowdowns(answers, known, runtimes.read(executors.page()))
    assert found.keys() == {"q/much", "q/rare", "q/never"}
    assert statistics.fmean(found["q/much"]) == pytest.approx(2.0)
    assert found["q/rare"] == found["q/never"] and statistics.fmean(found["q/rare"]) == pytest.approx(mean)
    everything = 4 * BATCHES
    assert mean == pytest.approx((everything * 0.02 + 0.5) / (everything * 0.01 + 0.005))
