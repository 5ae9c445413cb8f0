"""The evaluation's page: generated, in sections that can be made again alone.

It shows plainly what is missing.
"""

from __future__ import annotations

import re
import types

import pytest
from PIL import Image

from benchmarks.evaluation import __main__ as evaluation
from benchmarks.evaluation import published
from benchmarks.evaluation.page import compose, mark, missed, read_sections, table
from benchmarks.evaluation.runs import Outcome
from benchmarks.evaluation.sections import ALL, ablations, batching, scaling
from benchmarks.evaluation.source import ROOT
from benchmarks.evaluation.worlds import heterogeneous
from benchmarks.solver import Row
from scheduler.simulation import load

from .worlds import folder

pytestmark = pytest.mark.wide


def evaluate(tmp_path, *options: str) -> int:
    return evaluation.main(
        [
            "--data",
            str(tmp_path / "data"),
            "--kept",
            str(tmp_path / "kept"),
            "--page",
            str(tmp_path / "page.md"),
            # Each process imports all that a run needs, which takes longer than these runs.
            "--processes",
            "1",
            *options,
        ]
    )


def test_one_command_makes_a_section_with_its_images_and_the_next_keeps_it(tmp_path, capsys):
    folder(tmp_path / "data")
    assert evaluate(tmp_path, "--only", "bursty") == 0
    page = (tmp_path / "page.md").read_text()
    shown = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page)
    assert len(shown) == 2
    for name in shown:
        image = Image.open(tmp_path / name)
        image.load()
        assert image.width >= 800 and len(image.convert("RGB").getcolors(1 << 24)) > 10
    assert "Not made yet: `python -m benchmarks evaluation --only slo`" in page
    assert list(read_sections(page)) == list(ALL)
    # The same again runs nothing and changes nothing; another section leaves this one as it is.
    capsys.readouterr()
    assert evaluate(tmp_path, "--only", "bursty") == 0
    assert "0 runs made" in capsys.readouterr().err and (tmp_path / "page.md").read_text() == page
    assert evaluate(tmp_path, "--only", "references") == 0
    after = read_sections((tmp_path / "page.md").read_text())
    assert after["bursty"] == read_sections(page)["bursty"]
    assert "Not made yet" not in after["references"] and "Not made yet" in after["slo"]


def test_the_table_of_applications_has_the_figures_of_the_same_runs(tmp_path):
    data = folder(tmp_path / "data")
    assert evaluate(tmp_path, "--only", "applications") == 0
    text = read_sections((tmp_path / "page.md").read_text())["applications"]
    assert "| stack | faces | words | plates |" in text
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `proteus`")]
    assert len(rows) == 2 and all(80 <= float(cell.strip(" |")) <= 100 for cell in rows[1][1:])
    assert data.exists()


def test_nereus_is_taken_apart_in_bursts_and_with_few_residents_too(tmp_path, monkeypatch):
    folder(tmp_path / "data")
    two = {label: ablations.NEREUS[label] for label in ("nereus", "without standby")}
    monkeypatch.setattr(ablations, "NEREUS", two)
    monkeypatch.setattr(ablations, "PROTEUS", {"proteus": ablations.PROTEUS["proteus"]})
    assert evaluate(tmp_path, "--quick", "--only", "ablations") == 0
    text = read_sections((tmp_path / "page.md").read_text())["ablations"]
    tables = {part.splitlines()[0]: part for part in text.split("### ")[1:]}
    assert list(tables) == [
        "Parts of Proteus",
        "Parts of nereus",
        "Parts of nereus, on zipf_exponential_bursty",
        "Parts of nereus, at most 3 residents a device",
    ]
    rows = [[line for line in part.splitlines() if line.startswith("| `")] for part in tables.values()]
    assert [len(some) for some in rows] == [1, 2, 2, 2]
    # Each is a run of its own.
    assert len({some[-1] for some in rows[1:]}) == 3


def test_missing_data_is_named(tmp_path, capsys):
    assert evaluate(tmp_path, "--only", "references") == 1
    assert "cannot be read" in capsys.readouterr().err and not (tmp_path / "page.md").exists()


def test_a_quick_evaluation_never_touches_the_real_page():
    options = evaluation._parser().parse_args(["--quick"])
    assert options.page is None and evaluation.PAGE == ROOT / "docs" / "evaluation.md"
    assert evaluation.page_of(options) != evaluation.PAGE
    assert evaluation.page_of(evaluation._parser().parse_args([])) == evaluation.PAGE


@pytest.mark.parametrize("processes", ["0", "65", "two", "1.5"])
def test_a_wrong_number_of_processes_is_answered_with_its_limits(processes, capsys):
    with pytest.raises(SystemExit):
        evaluation._parser().parse_args(["--processes", processes])
    assert "from 1 to 64" in capsys.readouterr().err


def test_sections_survive_being_composed_and_read():
    sections = {"one": "## One\n\ntext\n\n| a |\n|---|", "two-b": "## Two"}
    text = compose("# Head\n", sections)
    assert read_sections(text) == sections and text.startswith("# Head\n")
    assert compose("# Head", read_sections(text)) == text


def test_the_head_names_the_sections_that_miss_a_target_or_left_something_out():
    sections = {"a": "## End to end\n\n**misses** x", "b": "## Three boxes, twelve\n\n**Left out**: y", "c": "## C"}
    assert missed(sections, dict.fromkeys(sections, "")) == (
        "Targets are missed in: [End to end](#end-to-end). "
        "Something is left out or failed in: [Three boxes, twelve](#three-boxes-twelve)."
    )
    assert missed({"c": "## C"}, {"c": ""}) == "No target is missed and nothing is left out."


def test_a_cell_cannot_break_a_table():
    assert table(("a", "b"), [("x|y", 1)]).splitlines()[2] == "| x\\|y | 1 |"


def test_targets_are_compared_without_rounding_and_misses_are_named():
    target = published.TARGETS["zipf_exponential"]
    good = {
        "violation_ratio": 0.0001,
        "effective_accuracy": 99.57,
        "max_accuracy_drop_10s": 0.8,
        "queries_per_cpu_s": 50_000.0,
    }
    assert published.misses(target, good) == []
    bad = {
        "violation_ratio": 0.000101,
        "effective_accuracy": 99.569,
        "max_accuracy_drop_10s": 0.801,
        "queries_per_cpu_s": 49_999.9,
    }
    assert [phrase.split()[0] for phrase in published.misses(target, bad)] == [
        "violations", "accuracy", "drop", "speed",
    ]  # fmt: skip
    assert published.misses(published.TARGETS["zipf_gamma"], {**good, "max_accuracy_drop_10s": 50.0}) == []


def test_solves_that_miss_their_gap_or_their_time_are_reported_in_the_head(monkeypatch):
    def row(grows: str, devices: int, asked: float, gap: float, first_s: float = 0.01) -> Row:
        return Row(grows, devices, 54, 9, "nereus", asked, first_s, 0.01, gap, gap <= asked)

    good = [row("corner", 40, 0.005, 0.004), row("corner", 40, 0.001, 0.001, 0.06), row("devices", 80, 0.001, 0.0)]
    other = Row("corner", 40, 54, 9, "proteus", 0.001, 9.0, 9.0, 0.5, False)
    assert scaling.misses([*good, other]) == []
    slow, wide = row("corner", 40, 0.005, 0.004, 0.051), row("devices", 80, 0.001, 0.0036)
    findings = scaling.misses([*good, slow, wide])
    assert findings == [
        "0.5% took 0.051 s with 40 devices, asked 0.05 s",
        "0.1% is not certified in 1 of 3 worlds (at worst 0.360%)",
    ]
    live = Row("devices", 2, 54, 9, "nereus", 0.005, 1.0, 1.0, 0.01, False, limits="live")
    assert scaling.misses([*good, live]) == ["0.5% (live) is not certified in 1 of 1 worlds (at worst 1.000%)"]
    monkeypatch.setattr("benchmarks.solver.measure", lambda quick: [*good, wide])
    text = f"## {scaling.TITLE}\n\n{scaling.body(types.SimpleNamespace(quick=True))}"
    assert "(not reached)" in text and missed({"scaling": text}, {"scaling": ""}) == (
        "Targets are missed in: [Solver scaling](#solver-scaling)."
    )
    monkeypatch.setattr("benchmarks.solver.measure", lambda quick: good)
    text = f"## {scaling.TITLE}\n\n{scaling.body(types.SimpleNamespace(quick=True))}"
    assert missed({"scaling": text}, {"scaling": ""}) == "No target is missed and nothing is left out."


def test_what_contradicts_a_paper_is_said_with_its_figures():
    def outcome(ratio: float, accuracy: float) -> Outcome:
        return Outcome({"violation_ratio": ratio, "effective_accuracy": accuracy}, [])

    fewer = {"proteus": outcome(0.00518, 99.558), "without adaptive batching": outcome(0.0046, 98.046)}
    assert "0.460% against 0.518%" in ablations.beside_the_paper(fewer)
    assert ablations.beside_the_paper({**fewer, "proteus": outcome(0.001, 99.6)}) == ""
    kinds = {batching.POISSON: {"clipper": 6e-5, "nexus": 3e-5, "proteus": 0.0}}
    kinds[batching.GAMMA_KIND] = {"clipper": 0.177, "nexus": 0.147, "proteus": 0.134}
    assert "violate 1.32 and 1.10 times" in " ".join(batching.beside_the_paper(kinds).split())
    assert batching.beside_the_paper({batching.POISSON: kinds[batching.POISSON]}) == ""


def test_the_case_of_three_boxes_has_more_applications_than_devices_and_is_a_scenario_file():
    scenario = load(ROOT / "benchmarks" / "evaluation" / "heterogeneous" / "scenario.toml")
    assert len(scenario.devices) == 3 == len({kind for _, kind in scenario.devices})
    assert len(scenario.applications) == 12 and len(set(scenario.slo_s.values())) > 3
    assert heterogeneous(False).scenario() == scenario


def test_sections_made_from_something_else_are_named():
    sections = {"new": "## New\n\n" + mark("b"), "old": "## Old\n\n" + mark("a"), "not": "## Not\n\nNot made yet: x"}
    text = missed(sections, {"new": mark("b"), "old": mark("b"), "not": mark("c")})
    assert "perhaps other than now: [Old](#old)." in text and "[New]" not in text
