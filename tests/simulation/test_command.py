"""``manage.py simulate`` from end to end, as a process of its own."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from tests.running import bare_environment

from .worlds import SCENARIO, files

pytestmark = pytest.mark.wide

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT.parent / "shared" / "data" / "proteus"


def run(tmp_path: Path, *args: str) -> subprocess.CompletedProcess:
    environ = bare_environment()
    environ |= {"NEREUS_HOME": str(tmp_path / "nowhere" / "home")}
    command = [sys.executable, str(ROOT / "manage.py"), "simulate", *args]
    return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=800)


def test_a_scenario_becomes_a_summary_a_table_and_a_page(tmp_path):
    ran = run(tmp_path, str(files(tmp_path)), "--stack", "proteus", "--batching", "nexus", "--out", "results")
    assert ran.returncode == 0, ran.stderr
    summary = json.loads((tmp_path / "results" / "summary.json").read_text())
    assert (summary["strategy"], summary["batching"], summary["routing"]) == ("proteus", "nexus", "shares")
    assert summary["queries"] == summary["in_time"] + summary["late"] + summary["dropped"] > 100
    assert {
        "violation_ratio", "effective_accuracy", "max_accuracy_drop_10s", "fluid_reference_accuracy", "wall_s",
        "solves", "max_solve_s",
    } <= summary.keys()  # fmt: skip
    assert {path.name for path in (tmp_path / "results").iterdir()} == {
        "summary.json", "per_second.csv", "per_application.csv", "report.html", "demand_throughput.png",
        "effective_accuracy.png", "violations.png",
    }  # fmt: skip
    # Nobody watches: no progress bar.
    assert ran.stderr == ""
    assert f"{summary['queries']} queries" in ran.stdout
    assert not (tmp_path / "nowhere" / "home" / "db.sqlite3").exists()


def test_what_is_wrong_is_said_in_lines_and_not_as_a_traceback(tmp_path):
    path = files(tmp_path, "load_time_s = -1\nsed = 1\n" + SCENARIO)
    ran = run(tmp_path, str(path))
    assert ran.returncode == 1
    assert "load_time_s: must be" in ran.stderr and "sed: unknown key" in ran.stderr
    assert "Traceback" not in ran.stderr and not (tmp_path / "scenario").exists()


def refused(*args: object) -> str:
    with pytest.raises(CommandError) as caught:
        call_command("simulate", *map(str, args))
    return str(caught.value)


@pytest.mark.parametrize("option", ["stack", "batching"])
def test_an_unknown_name_is_answered_with_the_known_ones(option, tmp_path):
    message = refused(files(tmp_path), f"--{option}", "nexsus", "--out", tmp_path / "out")
    assert f"{option}: must be one of" in message and not (tmp_path / "out").exists()


def test_what_is_wrong_with_the_scenario_and_with_the_names_is_reported_together(tmp_path):
    path = files(tmp_path, "load_time_s = -1\n" + SCENARIO)
    for option in ("batching", "stack"):
        message = refused(path, f"--{option}", "nexsus", "--out", tmp_path / "out")
        assert "load_time_s: must be" in message and f"{option}: must be one of" in message


def test_stacks_are_compared_on_one_page_with_a_folder_for_each(tmp_path):
    names = "proteus,proteus:nexus,proteus:clipper"
    out = tmp_path / "results"
    call_command("simulate", str(files(tmp_path)), compare=names, out=out, stdout=io.StringIO())
    summaries = json.loads((tmp_path / "results" / "comparison.json").read_text())
    runs = ["proteus", "proteus_nexus", "proteus_clipper"]
    assert list(summaries) == runs
    for name in runs:
        assert json.loads((tmp_path / "results" / name / "summary.json").read_text()) == summaries[name]
    assert all(summary["queries"] == summaries[runs[0]]["queries"] for summary in summaries.values())
    page = (tmp_path / "results" / "report.html").read_text()
    assert all(name in page for name in runs) and page.count("<img") == 3


def test_all_that_is_wrong_with_a_comparison_is_said_before_anything_runs(tmp_path):
    named = ("--stack", "proteus", "--compare", "proteus,protheus,proteus:a:b,")
    message = refused(files(tmp_path), *named, "--out", tmp_path / "out")
    assert "'proteus' is named twice" in message
    assert "not 'protheus'. Is 'proteus' meant?" in message
    assert "batching: must be one of" in message and "not 'a:b'" in message and "not ''" in message
    assert not (tmp_path / "out").exists()


def test_results_replace_older_ones_and_leave_other_files_alone(tmp_path):
    path = files(tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "notes.txt").write_text("mine")
    (tmp_path / "results" / "summary.json").write_text("old")
    call_command("simulate", str(path), stack=["proteus"], out=tmp_path / "results", stdout=io.StringIO())
    assert (tmp_path / "results" / "notes.txt").read_text() == "mine"
    assert json.loads((tmp_path / "results" / "summary.json").read_text())["queries"] > 100
    assert not [p.name for p in (tmp_path / "results").iterdir() if p.name.startswith(".")]


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "taken").write_text("a file")
    message = refused(files(tmp_path), "--stack", "proteus", "--out", tmp_path / "taken")
    assert f"--out: {tmp_path}/taken cannot be written" in message


@pytest.mark.skipif(not PUBLISHED.exists(), reason=f"the published profiles and traces are not at {PUBLISHED}")
def test_the_published_world_is_served_nearly_without_violations():
    from dataclasses import replace

    from scheduler.simulation import simulate
    from scheduler.simulation.scenario import parse

    scenario = parse(
        {
            "profiles": "profiles.csv",
            "trace": "traces/zipf_exponential.csv.gz",
            "batches": [1, 2, 4, 8],
            "devices": {"cpu": 20, "pascal": 10, "ampere": 10},
            "slo_ms": {"default": 300},
        },
        PUBLISHED,
    )
    a = scenario.arrivals
    part = replace(scenario, arrivals=replace(a, times=a.times[:6000], applications=a.applications[:6000]))
    summary = simulate(part, "proteus").summary
    assert summary["violation_ratio"] < 0.02
    # No plan under the SLO/2 rule can be more accurate than the fluid reference, except for what a short run leaves.
    assert 99 < summary["effective_accuracy"] < summary["fluid_reference_accuracy"] + 0.1
