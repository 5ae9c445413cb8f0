"""The evaluation's page: generated, in sections that can be made again alone.

It shows plainly what is missing.
"""

from __future__ import annotations

import re

import pytest
from PIL import Image

from benchmarks.evaluation import __main__ as evaluation
from benchmarks.evaluation.index import Figure, index
from benchmarks.evaluation.page import compose, mark, missed, read_sections, table
from benchmarks.evaluation.runs import Outcome
from benchmarks.evaluation.sections import ALL, ablations, batching
from benchmarks.evaluation.source import ROOT
from benchmarks.evaluation.worlds import heterogeneous
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
    head = next(line for line in text.splitlines() if line.startswith("| application |"))
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith(("| faces", "| words", "| plates"))]
    place = head.split(" | ").index("`proteus`")
    assert len(rows) == 3 and all(80 <= float(row[place].split(" / ")[1]) <= 100 for row in rows)
    figures = (tmp_path / "images" / "evaluation" / "applications.csv").read_text().splitlines()
    assert "(images/evaluation/applications.csv)" in text and len(figures) > 1 and "violation_ratio" in figures[0]
    assert data.exists()


def test_nereus_is_taken_apart_in_bursts_and_with_few_residents_too(tmp_path, monkeypatch):
    folder(tmp_path / "data")
    two = {label: ablations.NEREUS[label] for label in ("nereus", "without standby")}
    monkeypatch.setattr(ablations, "NEREUS", two)
    monkeypatch.setattr(ablations, "PROTEUS", {"proteus": ablations.PROTEUS["proteus"]})
    assert evaluate(tmp_path, "--quick", "--only", "ablations") == 0
    text = read_sections((tmp_path / "page.md").read_text())["ablations"]
    head = next(line for line in text.splitlines() if line.startswith("| parts of nereus |"))
    rows = [line for line in text.splitlines() if line.startswith(("| nereus |", "| without standby |"))]
    assert "| proteus |" in text and len(rows) == 2
    assert head.count("`") == 6 and "`zipf_exponential_bursty`" in head and "3 residents a device" in head
    # Each is a run of its own.
    assert len((tmp_path / "images" / "evaluation" / "ablations.csv").read_text().splitlines()) == 1 + 7


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


def test_the_head_names_the_sections_that_left_something_out():
    sections = {"a": "## End to end\n\ntext", "b": "## Three boxes, twelve\n\n**Left out**: y", "c": "## C"}
    assert missed(sections, dict.fromkeys(sections, "")) == (
        "Something is left out or failed in: [Three boxes, twelve](#three-boxes-twelve)."
    )
    assert missed({"c": "## C"}, {"c": ""}) == "Nothing is left out."


def test_the_index_counts_the_verdicts_on_each_figure():
    claims = (
        "| A falls (Fig. 4) | 1 | reproduced |\n| B (Fig. 4) | 2 | refuted: too light |\n| C (Fig. 41) | 3 | refuted |"
    )
    sections = {"a": f"## End to end\n\n{claims}", "b": "## B\n\nNot made yet: x", "c": "## C"}
    figures = [
        Figure("P", "Fig. 4", "x", "a", r"Fig\. 4\)"), Figure("P", "Fig. 5", "y", "b", "Fig"),
        Figure("P", "Fig. 6", "z", "c"), Figure("P", "Fig. 7", "w", "not done: no data"),
    ]  # fmt: skip
    assert index(sections, figures).splitlines()[2:] == [
        "| P | Fig. 4 | x | [a](#end-to-end) | 1 reproduced, 1 refuted |",
        "| P | Fig. 5 | y | [b](#b) | not made yet |",
        "| P | Fig. 6 | z | [c](#c) | figures alone |",
        "| P | Fig. 7 | w |  | not done: no data |",
    ]


def test_a_cell_cannot_break_a_table():
    assert table(("a", "b"), [("x|y", 1)]).splitlines()[2] == "| x\\|y | 1 |"


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
