"""The evaluation: runs made once, sections made alone, and the papers' claims."""

from __future__ import annotations

import bz2
import re

import pytest

from benchmarks.evaluation import __main__ as evaluation
from benchmarks.evaluation import infadapter, proteus, ramsis, runs, worlds
from benchmarks.evaluation.page import PaperFigure, compose, index, read_sections, table
from benchmarks.evaluation.runs import Case, Outcome, Runner, SourceChanged
from benchmarks.evaluation.worlds import SEEDS, published
from scheduler.simulation import simulate
from scheduler.simulation.seconds import Second
from scheduler.stacks.paper import Expected

from .worlds import folder

pytestmark = pytest.mark.wide

TRACE = "zipf_gamma"


def evaluate(tmp_path, *options: str) -> int:
    places = {"--data": tmp_path / "data", "--kept": tmp_path / "kept", "--page": tmp_path / "page.md"}
    given = [text for name, path in places.items() for text in (name, str(path))]
    # Each process imports all that a run needs, which takes longer than these runs.
    return evaluation.main([*given, "--processes", "1", *options])


def outcome(violations: float, accuracy: float, drop: float = 0.0, in_time: int = 100, **more) -> Outcome:
    summary = {"violation_ratio": violations, "effective_accuracy": accuracy, "max_accuracy_drop_10s": drop}
    return Outcome({**summary, "in_time": in_time, "duration_s": 1.0, "solves_cut_short": 0, **more}, [])


def verdicts(claims) -> list[str]:
    rows = list(claims)
    assert all(sentence and finding for sentence, finding, _ in rows)
    return [verdict.split(":")[0] for *_, verdict in rows]


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


def test_what_was_not_run_is_said(tmp_path):
    folder(tmp_path / "data")
    names = [name for name, section in evaluation.SECTIONS.items() if not name.startswith(("ramsis", "infadapter"))]
    grids = [name for name in names if name not in ("scaling", "worlds", "nereus-parts")]
    assert evaluate(tmp_path, "--no-run", *(word for name in grids for word in ("--only", name))) == 0
    sections = read_sections((tmp_path / "page.md").read_text())
    assert all("**Not run**: " in sections[name] and "| reproduced |" not in sections[name] for name in grids)


def test_missing_data_are_named(tmp_path, capsys):
    assert evaluate(tmp_path, "--only", "bursty") == 1
    assert "cannot be read" in (tmp_path / "page.md").read_text() + capsys.readouterr().err


def test_a_wrong_number_of_processes_is_answered_with_its_limits(capsys):
    with pytest.raises(SystemExit):
        evaluation._parser().parse_args(["--processes", "65"])
    assert "from 1 to 64" in capsys.readouterr().err


def test_sections_survive_being_composed_and_read():
    sections = {"one": "## One\n\ntext\n\n| a |\n|---|", "two-b": "## Two"}
    text = compose("# Head\n", sections)
    assert read_sections(text) == sections and compose("# Head", read_sections(text)) == text
    assert table(("a", "b"), [("x|y", 1)]).splitlines()[2] == "| x\\|y | 1 |"


def test_the_index_counts_the_verdicts_on_each_figure():
    claims = (
        "| A falls (Fig. 4) | 1 | reproduced |\n| B (Fig. 4) | 2 | refuted: too light |\n| C (Fig. 41) | 3 | refuted |"
    )
    sections = {"a": f"## End to end\n\n{claims}", "b": "## B\n\nNot made yet: x"}
    figures = [
        PaperFigure("P", "Fig. 4", "x", "a", r"Fig\. 4\)"), PaperFigure("P", "Fig. 5", "y", "b", "Fig"),
        PaperFigure("P", "Fig. 7", "w", "not done: no data"),
    ]  # fmt: skip
    assert index(sections, figures).splitlines()[2:] == [
        "| P | Fig. 4 | x | [a](#end-to-end) | 1 reproduced, 1 refuted |",
        "| P | Fig. 5 | y | [b](#b) | not made yet |",
        "| P | Fig. 7 | w |  | not done: no data |",
    ]


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


def test_code_that_changed_meanwhile_ends_the_evaluation_and_keeps_nothing(tmp_path):
    runner = Runner(tmp_path / "kept", 1)
    runner.source = "of older code"
    with pytest.raises(SourceChanged, match="start it again"):
        runner.run([Case(published(folder(tmp_path / "data"), TRACE), "proteus")])
    assert not list((tmp_path / "kept").glob("*.json"))


def test_a_run_that_fails_is_reported_and_not_kept_and_the_others_go_on(tmp_path):
    data = folder(tmp_path / "data")
    good, bad = (Case(published(place, TRACE), "proteus") for place in (data, tmp_path / "none"))
    runner = Runner(tmp_path / "kept", 2)
    runner.run([bad, good])
    assert runner.made == 1 and runner.outcome(good) and runner.outcome(bad) is None
    assert "cannot be read" in runner.why(bad)


def test_the_source_is_all_code_that_results_may_depend_on(tmp_path):
    for name in ("scheduler", "workers", "console"):
        (tmp_path / name).mkdir()
    before = runs.source_digest(tmp_path)
    (tmp_path / "console" / "a.py").write_text("x = 1\n")
    assert runs.source_digest(tmp_path) == before
    (tmp_path / "workers" / "a.py").write_text("x = 1\n")
    assert runs.source_digest(tmp_path) != before


# --- worlds -----------------------------------------------------------------------------------------------------------


def test_an_slo_multiple_is_of_the_fastest_variant_on_a_cpu_and_a_faster_trace_has_the_same_queries(tmp_path):
    data = folder(tmp_path / "data")
    slo_s = worlds.slo_multiple(data, TRACE, 1.5).scenario().slo_s
    assert slo_s == pytest.approx({"faces": 0.03, "words": 0.03, "plates": 0.03})
    usual = published(data, TRACE).scenario().arrivals
    fast = worlds.faster(data, tmp_path / "made", TRACE, 2.0).scenario().arrivals
    assert fast.applications == usual.applications
    assert fast.times == pytest.approx([t / 2 for t in usual.times], abs=1e-5)


# --- claims: they hold with the papers' own figures, and not with others ----------------------------------------------


def test_claims_of_proteus_end_to_end():
    paper = {
        "clipper-ht": outcome(0.11, 80, 20, 150), "clipper-ha": outcome(0.5, 100, 0, 100),
        "sommelier": outcome(0.028, 90, 16, 158), "infaas-accuracy": outcome(0.043, 92, 13.7, 155),
        "proteus": outcome(0.01, 97, 4.85, 161), "nereus": outcome(0.0, 99, 1.0, 162),
    }  # fmt: skip
    assert verdicts(proteus._end_to_end_claims(None, {"a": paper})) == ["reproduced"] * 10
    other = {**paper, "proteus": outcome(0.05, 99.9, 0.6, 110), "clipper-ha": outcome(0.09, 99.5, 0.5, 100)}
    assert verdicts(proteus._end_to_end_claims(None, {"a": other}))[3:] == ["reproduced"] * 2 + ["refuted"] * 5
    assert list(proteus._end_to_end_claims(None, {"a": {"proteus": paper["proteus"]}})) == []


def test_bursts_are_where_more_arrives_than_on_the_mean_and_onsets_differ_from_what_follows():
    def run(onset: int, after: int, accuracy: float) -> list[Second]:
        counts = [(10, 10)] * 40 + [(100, onset)] * proteus.ONSET_S + [(100, after)] * 25 + [(10, 10)] * 20
        return [Second(at, asked, done, 0, asked - done, accuracy) for at, (asked, done) in enumerate(counts)]

    assert proteus.bursts(run(90, 100, 97.0)) == [(40, 70)]
    assert proteus.bursts(run(90, 100, 97.0)[:45]) == [] == proteus.bursts([])
    for other, wanted in (
        ((95, 97, 96.0), ["reproduced"] * 3),
        ((70, 100, 99.0), ["refuted", "reproduced", "refuted"]),
    ):
        cells = {"proteus": Outcome({}, run(80, 100, 98.0)), "infaas-accuracy": Outcome({}, run(*other))}
        assert verdicts(proteus._bursty_claims(None, {proteus.BURSTY: cells})) == wanted


def test_claims_of_proteus_on_periods_policies_parts_and_slos():
    short, long = ({"proteus": outcome(ratio, 99.5)} for ratio in (0.005, 0.02))
    assert verdicts(proteus._period_claims(None, {"a, 10 s": short, "a, 30 s": short})) == ["reproduced"]
    assert verdicts(proteus._period_claims(None, {"a, 10 s": short, "a, 30 s": long})) == ["refuted"]
    policies = {name: outcome(ratio, 99) for name, ratio in (("clipper", 0.04), ("nexus", 0.02), ("proteus", 0.01))}
    even = dict.fromkeys(policies, outcome(0.0, 99))
    kinds = {proteus.EVEN: even, proteus.POISSON: policies, proteus.GAMMA: policies}
    assert verdicts(proteus._batching_claims(None, kinds)) == ["reproduced"] * 3
    kinds[proteus.POISSON] = even
    assert verdicts(proteus._batching_claims(None, kinds)) == ["reproduced", "refuted", "refuted"]
    figures = {proteus.MS: (0.18, 100), proteus.MP: (0.05, 90), proteus.AB: (0.15, 92), proteus.QA: (0.1, 95)}
    parts = {f"without {part}": {"proteus": outcome(*each)} for part, each in figures.items()}
    assert verdicts(proteus._parts_claims(None, parts)) == ["reproduced"] * 3 + ["not comparable"]

    def at(violations: float, drop: float, served: int) -> dict[str, Outcome]:
        others = {name: outcome(violations * 3, 90, drop + 2, served - 1) for name in proteus.BASELINES}
        return {**others, "proteus": outcome(violations, 95, drop, served)}

    found = {"1x": at(0.02, 8, 100), "2x": at(0.01, 5, 110), "3.5x": at(0.005, 3, 120)}
    assert verdicts(proteus._slo_claims(None, found)) == ["reproduced"] * 6
    found["1x"] |= {"clipper-ht": outcome(0.001, 80, 20, 90), "proteus": outcome(0.6, 95, 1, 200)}
    assert verdicts(proteus._slo_claims(None, found)) == ["refuted", "reproduced", *["refuted"] * 4]


@pytest.fixture
def few_workers(tmp_path, monkeypatch):
    """RAMSIS' world with two workers, as files in the published format."""
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


def test_ramsis_claims_hold_for_the_loads_that_the_paper_shows():
    found = {
        f"{load}/s": {
            "ramsis": outcome(0.003, accuracy), "jellyfish+": outcome(0.002, accuracy - 3),
            "modelswitching": outcome(0.001, accuracy - 2),
        }
        for load, accuracy in ((1200, 78.0), (2000, 75.0))
    }  # fmt: skip
    # Beyond what the paper shows: no part of the comparison.
    found["3600/s"] = {"ramsis": outcome(0.03, 58.0), "jellyfish+": outcome(0.4, 59.0)}
    assert verdicts(ramsis._load_claims(None, found)) == ["reproduced"] * 3
    found["1200/s"]["jellyfish+"] = outcome(0.002, 78.5)
    assert verdicts(ramsis._load_claims(None, found)) == ["refuted", "refuted", "reproduced"]
    expected = {1200: Expected(77.9, 0.002), 3600: Expected(50.0, 0.4)}
    for ratio, verdict in ((0.001, "reproduced"), (0.01, "refuted")):
        assert verdicts(ramsis.expected_claims({"1200/s": outcome(ratio, 78.0)}, expected)) == [verdict]
    trace = {name: outcome(0.02, 66.0) for name in ("ramsis", "jellyfish+", "modelswitching")}
    assert verdicts(ramsis._trace_claims(None, {ramsis.TWITTER: trace})) == ["not comparable", "refuted"]


@pytest.fixture
def few_cores(tmp_path, monkeypatch):
    """InfAdapter's world with three cores, as files in the published format."""
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
