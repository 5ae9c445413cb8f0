"""The figures that a simulation ends with, and the files that it writes."""

from __future__ import annotations

import csv
import json
import re
import xml.etree.ElementTree as ElementTree

import pytest

from scheduler.simulation import simulate
from scheduler.simulation.fluid import fluid_reference
from scheduler.simulation.report import plot
from scheduler.simulation.scenario import Control

from .worlds import model, world

EXACT = model("q", "exact", 100, cpu={1: 100})
ROUGH = model("q", "rough", 80, cpu={1: 10})


def test_the_fluid_reference_mixes_variants_to_use_all_of_the_time():
    # 50 items/s on one device, 10/s exact or 100/s rough: x + (50 - x) / 10 = 10, so x = 50/9 of them are exact.
    scenario = world([EXACT, ROUGH], [(20 * i, "q") for i in range(250)])
    exact = 50 / 9
    assert fluid_reference(scenario) == pytest.approx((exact * 100 + (50 - exact) * 80) / 50, abs=1e-4)


def test_the_fluid_reference_serves_what_it_can_before_it_looks_at_accuracy():
    scenario = world([EXACT, ROUGH], [(4 * i, "q") for i in range(1250)])
    assert fluid_reference(scenario) == pytest.approx(80, abs=1e-3)


def test_the_fluid_reference_keeps_batches_within_half_the_slo():
    scenario = world([EXACT, ROUGH], [(1000 * i, "q") for i in range(5)], slo_s={"q": 0.19})
    assert fluid_reference(scenario) == pytest.approx(80)


def test_the_drop_is_that_of_the_worst_whole_ten_seconds_after_the_first_twenty():
    # 5/s fit the exact variant; from 30 s to 40 s there are 50/s. The first 10 s, as busy, do not count,
    # and neither do the 5 s after that, which are rough still.
    arrivals = [(20 * i, "q") for i in range(500)] + [(10_000 + 200 * i, "q") for i in range(100)]
    arrivals += [(30_000 + 20 * i, "q") for i in range(500)] + [(40_000 + 200 * i, "q") for i in range(25)]
    control = Control(period_s=10, burst_check_s=1, initial_qps=5)
    results = simulate(world([EXACT, ROUGH], arrivals, control=control), "proteus", "proteus", "shares")
    seconds = [s for s in results.per_second if 30 <= s.second < 40]
    served = sum(s.in_time for s in seconds)
    worst = sum(s.in_time * s.effective_accuracy for s in seconds if s.in_time) / served
    assert worst < 90
    assert results.summary["max_accuracy_drop_10s"] == pytest.approx(100 - worst)


def test_a_run_too_short_for_a_drop_has_none():
    assert simulate(world([EXACT], [(0, "q")]), "proteus").summary["max_accuracy_drop_10s"] is None


def test_a_run_without_queries_has_no_accuracy_and_no_violations(tmp_path):
    results = simulate(world([EXACT], []), "proteus")
    assert results.summary["queries"] == 0 and results.summary["violation_ratio"] == 0
    assert results.summary["effective_accuracy"] is None
    assert "Nothing to show" in (results.write(tmp_path / "out") / "report.html").read_text()


def test_the_files_say_what_the_summary_says(tmp_path):
    results = simulate(world([EXACT, ROUGH], [(60 * i, "q") for i in range(80)]), "proteus", "nexus", "uniform")
    folder = results.write(tmp_path / "new" / "out")
    summary = json.loads((folder / "summary.json").read_text())
    assert summary == results.summary and summary["queries"] == 80
    with (folder / "per_second.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert sum(int(row["arrived"]) for row in rows) == 80
    assert sum(int(row["in_time"]) for row in rows) == summary["in_time"]
    page = (folder / "report.html").read_text()
    assert page.count("<svg") == 3
    # Nothing is fetched: no address anywhere.
    assert not re.search(r"https?:|src=|href=", page)


def test_a_plot_draws_each_line_within_its_frame_and_leaves_gaps():
    svg = ElementTree.fromstring(plot({"a": [1.0, 5.0, None, 3.0], "b": [0.0, None, None, 9.0]}))
    paths = [path.get("d") for path in svg.iter("path")]
    assert [path.count("M") for path in paths] == [2, 2]
    for path in paths:
        for x, y in re.findall(r"[ML]([\d.-]+) ([\d.-]+)", path):
            assert 0 <= float(x) <= 900 and 0 <= float(y) <= 220


@pytest.mark.parametrize("values", [[0.0], [7.0, 7.0], [99.95, 100.0], [-1.0, 1e9]])
def test_any_values_can_be_plotted(values):
    assert "<path" in plot({"a": values})
