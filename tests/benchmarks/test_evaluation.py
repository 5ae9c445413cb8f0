"""The evaluation: runs made once, and sections made alone."""

from __future__ import annotations

import bz2
import re

import pytest

from benchmarks.evaluation import __main__ as evaluation
from benchmarks.evaluation import infadapter, proteus, ramsis, worlds
from benchmarks.evaluation.page import read_sections
from benchmarks.evaluation.runs import Case, Runner
from benchmarks.evaluation.worlds import SEEDS, published
from scheduler.simulation import simulate
from scheduler.simulation.seconds import Second

from .worlds import folder

pytestmark = pytest.mark.wide

TRACE = "zipf_gamma"


def evaluate(tmp_path, *options: str) -> int:
    places = {"--data": tmp_path / "data", "--kept": tmp_path / "kept", "--page": tmp_path / "page.md"}
    given = [text for name, path in places.items() for text in (name, str(path))]
    # Each process imports all that a run needs, which takes longer than these runs.
    return evaluation.main([*given, "--processes", "1", *options])


def test_one_command_makes_sections_and_the_next_keeps_them(tmp_path, capsys):
    folder(tmp_path / "data")
    assert evaluate(tmp_path, "--only", "bursty", "--only", "applications") == 0
    page = (tmp_path / "page.md").read_text()
    for name in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert "Not made yet: `python -m benchmarks evaluation --only slo`" in page
    assert list(read_sections(page)) == list(evaluation.SECTIONS)
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith(("| faces", "| words", "| plates"))]
    assert len(rows) == 3 and all(80 <= float(row[5].split(" / ")[1]) <= 100 for row in rows)
    assert "violation_ratio" in (tmp_path / "images" / "evaluation" / "applications.csv").read_text()
    # The same again runs nothing and changes nothing; another section leaves these as they are.
    capsys.readouterr()
    assert evaluate(tmp_path, "--only", "bursty") == 0
    assert "0 runs made" in capsys.readouterr().err and (tmp_path / "page.md").read_text() == page
    assert evaluate(tmp_path, "--only", "proteus-parts") == 0
    after = read_sections((tmp_path / "page.md").read_text())
    assert after["bursty"] == read_sections(page)["bursty"]
    assert "| without model selection |" in after["proteus-parts"] and "Not made yet" in after["slo"]


# --- runs -------------------------------------------------------------------------------------------------------------


def test_a_run_is_made_once_and_found_again_as_it_was(tmp_path):
    case = Case(published(folder(tmp_path / "data"), TRACE), "proteus", "nexus")
    first, again = Runner(tmp_path / "kept", 1), Runner(tmp_path / "kept", 1)
    first.run([case, case])
    again.run([case])
    assert (first.made, again.made) == (1, 0)
    results, found = simulate(case.world.scenario(), "proteus", "nexus"), again.outcome(case)
    assert found.seconds == results.per_second
    assert all(found.summary[key] == results.summary[key] for key in ("queries", "violation_ratio", "p99_latency_ms"))
    # Nothing that is kept gets into the repository, and half a file counts as none.
    assert (tmp_path / "kept" / ".gitignore").read_text() == "*\n"
    again._path(case).write_text('{"summary": {')
    assert again.outcome(case) is None


def test_a_world_in_which_something_is_drawn_runs_once_for_each_seed(tmp_path):
    case = Case(published(folder(tmp_path / "data"), TRACE, name="noise", profile_noise=0.2), "proteus")
    runner = Runner(tmp_path / "kept", 1)
    runner.run([case])
    found = runner.outcome(case)
    each = [simulate(one.world.scenario(), "proteus").summary for one in case.seeds()]
    latencies = [one["median_latency_ms"] for one in each]
    assert runner.made == len(each) == SEEDS and len(set(latencies)) > 1
    assert found.summary["queries"] == sum(one["queries"] for one in each)
    assert found.summary["median_latency_ms"] == pytest.approx(sum(latencies) / SEEDS)
    assert found.spread["median_latency_ms"] == pytest.approx((max(latencies) - min(latencies)) / 2)


def test_a_key_changes_with_all_that_a_result_depends_on_and_with_nothing_else(tmp_path):
    data, moved, changed = (folder(tmp_path / name) for name in ("data", "moved", "changed"))
    text = (changed / "profiles.csv").read_text()
    (changed / "profiles.csv").write_text(text.replace("faces,tiny,80,", "faces,tiny,81,"))
    case = Case(published(data, TRACE), "proteus")
    assert case.key("s") == Case(published(moved, TRACE), "proteus", "proteus").key("s")
    different = [
        case.key("other source"),
        Case(published(data, "zipf_exponential"), "proteus").key("s"),
        Case(published(data, TRACE, seed=2), "proteus").key("s"),
        Case(published(data, TRACE), "proteus", "nexus").key("s"),
        Case(published(changed, TRACE), "proteus").key("s"),
    ]
    assert len({case.key("s"), *different}) == len(different) + 1


def test_what_was_run_while_the_code_changed_is_not_kept(tmp_path):
    runner = Runner(tmp_path / "kept", 1)
    runner.source = "of older code"
    case = Case(published(folder(tmp_path / "data"), TRACE), "proteus")
    runner.run([case])
    assert "changed meanwhile" in runner.why(case) and not list((tmp_path / "kept").glob("*.json"))


def test_a_run_that_fails_is_reported_and_not_kept_and_the_others_go_on(tmp_path):
    data = folder(tmp_path / "data")
    good, bad = (Case(published(place, TRACE), "proteus") for place in (data, tmp_path / "none"))
    runner = Runner(tmp_path / "kept", 2)
    runner.run([bad, good])
    assert runner.made == 1 and runner.outcome(good) and runner.outcome(bad) is None
    assert "cannot be read" in runner.why(bad)


# --- worlds -----------------------------------------------------------------------------------------------------------


def test_an_slo_multiple_is_of_the_fastest_variant_on_a_cpu_and_a_faster_trace_has_the_same_queries(tmp_path):
    data = folder(tmp_path / "data")
    slo_s = worlds.slo_multiple(data, TRACE, 1.5).scenario().slo_s
    assert slo_s == pytest.approx({"faces": 0.03, "words": 0.03, "plates": 0.03})
    usual = published(data, TRACE).scenario().arrivals
    fast = worlds.faster(data, tmp_path / "made", TRACE, 2.0).scenario().arrivals
    assert fast.applications == usual.applications
    assert fast.times == pytest.approx([t / 2 for t in usual.times], abs=1e-5)


def test_bursts_are_where_more_arrives_than_on_the_mean_for_long():
    seconds = [Second(at, count, count, 0, 0, 97.0) for at, count in enumerate([10] * 40 + [100] * 30 + [10] * 20)]
    assert proteus.bursts(seconds) == [(40, 70)]
    assert proteus.bursts(seconds[:45]) == [] == proteus.bursts([])


@pytest.fixture
def few_workers(tmp_path, monkeypatch):
    data = tmp_path / "ramsis"
    data.mkdir()
    lines = ["model,accuracy,batch,p50_ms,p95_ms,mean_ms,n"]
    for model, accuracy, base, row in (("quick", 60, 5, 5), ("good", 80, 20, 16)):
        lines += [
            f"{model},{accuracy},{n},{base + row * n - 1},{base + row * n},{base + row * n},9" for n in (1, 2, 3, 4)
        ]
    (data / "image_profile.csv").write_text("\n".join(lines) + "\n")
    (data / "twitter_qps.csv").write_text("second,qps\n0,40.0\n1,120.0\n2,60.0\n")
    for name, value in {"WORKERS": 2, "LOADS": (1200,), "CONSTANT_S": 0.2}.items():
        monkeypatch.setattr(ramsis, name, value)
    return data


def test_ramsis_world_is_the_published_one_and_has_all_forms(few_workers, tmp_path):
    found = ramsis.worlds(few_workers, tmp_path / "made")
    scenario = found["twitter"].scenario()
    assert [model.name for model in scenario.models] == ["quick", "good"]
    assert scenario.models[1].points["n1"][1] == (2, 0.052)
    counts = [sum(second <= t < second + 1 for t in scenario.arrivals.times) for second in range(3)]
    assert all(abs(count - rate) < 6 * rate**0.5 for count, rate in zip(counts, (40, 120, 60), strict=True))
    assert evaluate(tmp_path, "--only", "ramsis-forms") == 0
    text = read_sections((tmp_path / "page.md").read_text())["ramsis-forms"]
    assert all(f"| {stack} | " in text for stack in (*ramsis.FORMS, ramsis.KNOWN_LOAD))


@pytest.fixture
def few_cores(tmp_path, monkeypatch):
    data = tmp_path / "infadapter"
    data.mkdir()
    lines = ["variant,cpu_cores,slo_ms,p99_ms,capacity_qps,saturation_qps"]
    for variant, rate in zip(infadapter.VARIANTS, (24, 13, 10, 5, 4), strict=True):
        for cores in (1, 2, 4, 6, 8, 16, 20):
            lines += [f"{variant},{cores},{slo},,{rate * cores - 1},{rate * cores}" for slo in (750, 1000)]
    (data / "resnet_cpu_capacity.csv").write_text("\n".join(lines) + "\n")
    spiked, steady = [3.0] * 6 + [20.0] * 2 + [8.0, 5.0, 3.0, 3.0], [4.0] * 12
    with bz2.open(data / "twitter_qps.txt.bz2", "wt") as file:
        file.write("".join(f"{rate}\n" for rate in [*steady, *[1.0] * 48, *spiked, *[0.0] * 48]))
    changes = {"TRAINED_DAYS": 0, "TRACE_S": 12, "PERIOD_S": 3, "BUDGET": 3, "BETAS": (0.05,)}
    changes |= {"BEFORE": slice(0, 6), "SPIKE": slice(6, 8), "AFTER": slice(10, 12)}
    for name, value in changes.items():
        monkeypatch.setattr(infadapter, name, value)
    return data, spiked


def test_infadapters_world_is_the_published_one_and_has_a_verdict_for_each_claim(few_cores, tmp_path):
    data, spiked = few_cores
    scenario = infadapter.worlds(data, tmp_path / "made")["bursty", 0.05, "trend"].scenario()
    assert scenario.models[0].points["core"] == ((1, pytest.approx(1 / 24)),)
    assert scenario.models[4].capacities["core"][1] == (2, 7.0)
    assert len(scenario.devices) == 6 and scenario.costs.budget == 3 and scenario.make_before_break
    counts = [sum(second <= t < second + 1 for t in scenario.arrivals.times) for second in range(12)]
    assert counts == spiked
    assert evaluate(tmp_path, "--only", "infadapter") == 0
    text = read_sections((tmp_path / "page.md").read_text())["infadapter"]
    assert all(f"| {stack} |" in text for stack in (*infadapter.VERTICAL, infadapter.DEFAULT))
    assert len(re.findall(r" \| (reproduced|refuted|not comparable)", text)) >= 10
