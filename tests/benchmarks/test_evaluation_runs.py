"""Runs of the evaluation are made once, and go on after a kill.

They are kept by all that they depend on.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.evaluation import runs, source
from benchmarks.evaluation.runs import Case, Runner, SourceChanged
from benchmarks.evaluation.source import source_digest
from benchmarks.evaluation.worlds import SEEDS, published, slo_multiple
from scheduler.simulation import simulate
from scheduler.stacks.registry import PAPERS

from .worlds import folder

pytestmark = pytest.mark.wide

TRACE = "zipf_gamma"
POLICIES = ("proteus", "nexus", "clipper")


def cases(data: Path) -> list[Case]:
    return [Case(published(data, TRACE, False), "proteus", policy, "shares") for policy in POLICIES]


def test_a_run_is_made_once_and_found_again_as_it_was(tmp_path):
    case = cases(folder(tmp_path / "data"))[0]
    first = Runner(tmp_path / "kept", 1)
    first.run([case, case])
    again = Runner(tmp_path / "kept", 1)
    again.run([case])
    assert (first.made, again.made) == (1, 0)
    results = simulate(case.world.scenario(), "proteus", "proteus", "shares")
    outcome = again.outcome(case)
    assert outcome.seconds == results.per_second
    timed = {"wall_s", "queries_per_wall_s", "cpu_s", "queries_per_cpu_s", "total_solve_s", "max_solve_s"}
    timed |= {"load_average"}
    assert {k: v for k, v in outcome.summary.items() if k not in timed} == {
        k: v for k, v in results.summary.items() if k not in timed
    }
    # Nothing that is kept gets into the repository.
    assert (tmp_path / "kept" / ".gitignore").read_text() == "*\n"


def test_a_world_in_which_something_is_drawn_runs_once_for_each_seed(tmp_path):
    data = folder(tmp_path / "data")
    case = Case(published(data, TRACE, False, name="noise", profile_noise=0.2), "proteus")
    runner = Runner(tmp_path / "kept", 1)
    runner.run([case])
    found = runner.outcome(case)
    each = [simulate(one.world.scenario(), "proteus").summary for one in case.seeds()]
    latencies = [one["median_latency_ms"] for one in each]
    assert runner.made == len(each) == SEEDS and len(set(latencies)) > 1
    assert found.summary["queries"] == sum(one["queries"] for one in each)
    assert found.summary["median_latency_ms"] == pytest.approx(sum(latencies) / SEEDS)
    assert found.spread["median_latency_ms"] == pytest.approx((max(latencies) - min(latencies)) / 2)
    assert runner.outcome(cases(data)[0]) is None and len(cases(data)[0].seeds()) == 1


def test_a_killed_evaluation_goes_on_where_it_stopped(tmp_path):
    data = folder(tmp_path / "data")
    # The process that makes the runs kills all of them once its first result is kept.
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from benchmarks.evaluation import runs\n"
        "from tests.benchmarks.test_evaluation_runs import cases\n"
        "make = runs._make\n"
        "def killing(*given):\n"
        "    make(*given)\n"
        "    os.killpg(0, signal.SIGKILL)\n"
        "if __name__ == '__main__':\n"
        "    runs.Runner(Path(sys.argv[2]), 1).run(cases(Path(sys.argv[1])))\n"
        "else:\n"
        "    runs._make = killing\n"
    )
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, str(tmp_path / "program.py"), str(data), str(tmp_path / "kept")]
    environ = os.environ | {"PYTHONPATH": str(source.ROOT)}
    started = subprocess.Popen(command, env=environ, start_new_session=True, stderr=subprocess.DEVNULL)
    assert started.wait(200) == -signal.SIGKILL
    kept = len(list((tmp_path / "kept").glob("*.json")))
    assert kept == 1
    runner = Runner(tmp_path / "kept", 1)
    runner.run(cases(data))
    assert runner.made == len(POLICIES) - kept
    assert all(runner.outcome(case) for case in cases(data))


def test_a_key_changes_with_all_that_a_result_depends_on_and_with_nothing_else(tmp_path):
    data, other = folder(tmp_path / "data"), folder(tmp_path / "moved")
    case = Case(published(data, TRACE, False), "proteus")
    assert case.key("s") == Case(published(other, TRACE, False), "proteus", "proteus", "shares").key("s")
    different = [
        case.key("other source"),
        Case(published(data, TRACE, True), "proteus").key("s"),
        Case(published(data, TRACE, False, seed=2), "proteus").key("s"),
        Case(published(data, "zipf_exponential", False), "proteus").key("s"),
        Case(published(data, TRACE, False), "proteus", "nexus").key("s"),
        Case(published(data, TRACE, False), "proteus", None, "uniform").key("s"),
        Case(slo_multiple(data, TRACE, 2.0, False), "proteus").key("s"),
    ]
    changed = folder(tmp_path / "changed")
    text = (changed / "profiles.csv").read_text()
    (changed / "profiles.csv").write_text(text.replace("faces,tiny,80,", "faces,tiny,81,"))
    different.append(Case(published(changed, TRACE, False), "proteus").key("s"))
    assert len({case.key("s"), *different}) == len(different) + 1


def test_the_source_is_the_code_that_a_run_imports(tmp_path):
    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    write("scheduler/__init__.py", "")
    write("scheduler/simulation/__init__.py", "from . import engine\nfrom ..plan import made as other\n")
    write("scheduler/simulation/engine.py", "def go():\n    from workers.deep.code import x\n    return x\n")
    write("scheduler/plan/__init__.py", "")
    write("scheduler/plan/made.py", "import json\n")
    write("scheduler/web.py", "y = 1\n")
    write("workers/deep/__init__.py", "")
    write("workers/deep/code.py", '"""Words."""\nx = 1  # a reason\n')
    assert source.imported(tmp_path, source.SIMULATION) == {
        "scheduler/simulation/__init__.py", "scheduler/simulation/engine.py", "scheduler/__init__.py",
        "scheduler/plan/__init__.py", "scheduler/plan/made.py", "workers/deep/__init__.py", "workers/deep/code.py",
    }  # fmt: skip
    before, whole = source_digest(tmp_path), source_digest(tmp_path, start=None)
    write("scheduler/simulation/notes.md", "no code")
    write("workers/deep/code.py", "\n\nx = 1\n")
    assert (source_digest(tmp_path), source_digest(tmp_path, start=None)) == (before, whole)
    write("scheduler/web.py", "y = 2\n")
    assert source_digest(tmp_path) == before and source_digest(tmp_path, start=None) != whole
    write("workers/deep/code.py", "x = 2\n")
    changed = source_digest(tmp_path)
    assert changed != before
    assert source_digest(tmp_path, ("workers/deep/",)) != changed
    assert source_digest(tmp_path, ("workers/deeper/",)) == changed


def test_no_run_imports_more_than_what_counts(tmp_path):
    # In a process of its own: this one has imported more already.
    program = (
        "import sys; from pathlib import Path\n"
        "from scheduler.simulation import simulate\n"
        "from benchmarks.evaluation.source import ROOT, SIMULATION, imported\n"
        "from benchmarks.evaluation.worlds import published\n"
        "scenario = published(Path(sys.argv[1]), 'zipf_gamma', False).scenario()\n"
        "for name in ('nereus', 'proteus', 'infaas-ilp', 'ramsis', 'infadapter', 'clipper-ha'):\n"
        "    simulate(scenario, name)\n"
        "files = [module.__file__ for module in sys.modules.values() if getattr(module, '__file__', None)]\n"
        "paths = {Path(file).resolve() for file in files}\n"
        "inside = {p.relative_to(ROOT).as_posix() for p in paths if p.is_relative_to(ROOT)}\n"
        "print(*sorted(p for p in inside - imported(ROOT, SIMULATION) if p.startswith(('scheduler/', 'workers/'))))\n"
    )
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, str(tmp_path / "program.py"), str(folder(tmp_path / "data"))]
    environ = os.environ | {"PYTHONPATH": str(source.ROOT)}
    assert subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout.split() == []


def test_late_binding_and_each_paper_count_for_their_own_stacks():
    world = published(Path(), TRACE, False)
    papers = {name: f"scheduler/stacks/{name}/" for name in PAPERS}
    assert Case(world, "nereus").unused() == tuple(papers.values())
    for name in ("proteus", "ramsis"):
        others = [path for paper, path in papers.items() if paper != name]
        assert Case(world, name).unused() == (*runs.LATE_SOURCES, *others)
    for path in (*runs.LATE_SOURCES, *papers.values()):
        assert (source.ROOT / path).exists()


def test_a_section_is_known_by_its_runs_and_by_nothing_else(tmp_path):
    some = cases(folder(tmp_path / "data"))
    runner = Runner(tmp_path / "kept", 1)
    whole = runner.digest(some)
    assert runner.digest([*reversed(some), some[0]]) == whole != runner.digest(some[1:])
    unknown = Case(some[0].world, "no-such-stack")
    assert runner.digest([*some, unknown]) not in {whole, runner.digest(some[1:])}


def test_code_that_changed_meanwhile_ends_the_evaluation_and_keeps_nothing(tmp_path):
    runner = Runner(tmp_path / "kept", 1)
    runner.source = "of older code"
    with pytest.raises(SourceChanged, match="start it again"):
        runner.run(cases(folder(tmp_path / "data"))[:1])
    assert not list((tmp_path / "kept").glob("*.json"))


def test_a_run_that_fails_is_reported_and_not_kept_and_the_others_go_on(tmp_path):
    data = folder(tmp_path / "data")
    good = cases(data)[0]
    shutil.copytree(data, tmp_path / "broken")
    (tmp_path / "broken" / "traces" / f"{TRACE}.csv.gz").unlink()
    bad = cases(tmp_path / "broken")[0]
    runner = Runner(tmp_path / "kept", 2)
    runner.run([bad, good])
    assert runner.made == 1 and runner.outcome(good) and runner.outcome(bad) is None
    assert "cannot be read" in runner.failed[bad]


def test_half_a_file_counts_as_none(tmp_path):
    case = cases(folder(tmp_path / "data"))[0]
    runner = Runner(tmp_path, 1)
    runner._path(runner.key(case)).write_text(json.dumps({"summary": {}})[:-4])
    assert runner.outcome(case) is None


def test_names_that_are_not_registered_are_said_and_not_run(tmp_path):
    case = Case(published(folder(tmp_path / "data"), TRACE, False), "proteus", "no-such-policy")
    runner = Runner(tmp_path / "kept", 1)
    runner.run([case])
    assert runner.made == 0 and runner.outcome(case) is None
    assert "no-such-policy" in case.missing() and "must be one of" in case.missing()


def test_an_slo_multiple_is_of_the_fastest_variant_on_a_cpu_at_batch_one(tmp_path):
    scenario = slo_multiple(folder(tmp_path / "data"), TRACE, 1.5, False).scenario()
    assert scenario.slo_s == pytest.approx({"faces": 0.03, "words": 0.03, "plates": 0.03})
