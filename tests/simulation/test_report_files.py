"""Files of a finished simulation: tables, real images, and one page that needs nothing else."""

from __future__ import annotations

import base64
import csv
import json
import re
from html.parser import HTMLParser

import pytest

from scheduler.simulation import plots, simulate
from scheduler.simulation.files import staged
from scheduler.simulation.seconds import Second, binned

from .worlds import model, world, written

pytestmark = pytest.mark.wide

MODELS = [model("q", "exact", 100, cpu={1: 100}), model("q", "rough", 80, cpu={1: 10}), model("<b>", "m", cpu={1: 5})]
IMAGES = ("demand_throughput.png", "effective_accuracy.png", "violations.png")


def ran():
    arrivals = [(60 * i, "q") for i in range(80)] + [(900 * i, "<b>") for i in range(5)]
    return simulate(world(MODELS, arrivals, ["cpu", "cpu"]), "proteus", "nexus")


def seconds(arrived, in_time, accuracy=None) -> list[Second]:
    accuracy = accuracy or [100.0] * len(arrived)
    return [
        Second(t, a, good, 0, a - good, value if good else None)
        for t, (a, good, value) in enumerate(zip(arrived, in_time, accuracy, strict=True))
    ]


def test_the_tables_say_what_the_summary_says(tmp_path):
    results = ran()
    folder = written(results, tmp_path / "new" / "out")
    summary = json.loads((folder / "summary.json").read_text())
    assert summary == results.summary and summary["queries"] == 85
    with (folder / "per_second.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["second", "arrived", "in_time", "late", "dropped", "effective_accuracy"]
    assert sum(int(row["arrived"]) for row in rows) == 85
    assert sum(int(row["in_time"]) for row in rows) == summary["in_time"]
    with (folder / "per_application.csv").open() as file:
        rows = {row["application"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"q", "<b>"}
    for name, row in rows.items():
        for key, value in summary["per_application"][name].items():
            assert float(row[key]) == pytest.approx(value, abs=1e-6) if value is not None else row[key] == ""


def test_identical_runs_leave_identical_images_and_tables(tmp_path):
    one, two = written(ran(), tmp_path / "one"), written(ran(), tmp_path / "two")
    for name in (*IMAGES, "per_second.csv", "per_application.csv"):
        assert (one / name).read_bytes() == (two / name).read_bytes()


def test_the_page_needs_nothing_but_itself(tmp_path):
    folder = written(ran(), tmp_path / "out")
    page = (folder / "report.html").read_text()
    sources, tags = [], []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attributes):
            tags.append(tag)
            sources.extend(value for key, value in attributes if key in ("src", "href", "srcset", "action"))

    Reader().feed(page)
    assert not re.search(r"https?:|url\(|@import", page) and not {"script", "link", "iframe", "b"} & set(tags)
    embedded = [base64.b64decode(source.removeprefix("data:image/png;base64,"), validate=True) for source in sources]
    assert embedded == [(folder / name).read_bytes() for name in IMAGES]
    assert "&lt;b&gt;" in page


def test_a_run_without_queries_has_a_page_that_says_so(tmp_path):
    results = simulate(world(MODELS[:1], []), "proteus")
    assert results.summary["queries"] == 0 and results.summary["violation_ratio"] == 0
    assert results.summary["effective_accuracy"] is None
    folder = written(results, tmp_path / "out")
    assert "0 queries" in (folder / "report.html").read_text()
    assert [text.get_text() for text in plots.violations({"run": []}).axes[0].texts] == ["Nothing arrived."]


def test_bins_are_means_over_the_seconds_that_they_have():
    lines = binned(seconds([10, 20, 6], [10, 10, 0], [100.0, 80.0, 0.0]), 2)
    assert lines == [(1.0, 15.0, 10.0, 90.0, 5.0), (2.5, 6.0, 0.0, None, 6.0)]


def test_an_error_leaves_the_folder_as_it_was(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "summary.json").write_text("old")
    with pytest.raises(RuntimeError), staged(tmp_path / "kept") as stage:
        (stage / "summary.json").write_text("half")
        raise RuntimeError
    assert [p.name for p in (tmp_path / "kept").iterdir()] == ["summary.json"]
    assert (tmp_path / "kept" / "summary.json").read_text() == "old"
    with pytest.raises(RuntimeError), staged(tmp_path / "new" / "run"):
        raise RuntimeError
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]


def test_what_is_in_the_way_is_named_before_anything_moves(tmp_path):
    (tmp_path / "out" / "summary.json").mkdir(parents=True)
    with pytest.raises(FileExistsError, match=r"summary\.json is in the way"):
        written(ran(), tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["summary.json"]
