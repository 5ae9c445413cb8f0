"""RAMSIS' world in the evaluation.

It is made from files like the published ones, and shown beside the paper's figures.
"""

from __future__ import annotations

import pytest

from benchmarks.evaluation import __main__ as evaluation
from benchmarks.evaluation import ramsis
from benchmarks.evaluation.page import read_sections
from benchmarks.evaluation.sections import ramsis as section

pytestmark = pytest.mark.wide


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Two workers and a light load, as files in the published format."""
    folder = tmp_path / "ramsis"
    folder.mkdir()
    lines = ["model,accuracy,batch,p50_ms,p95_ms,mean_ms,n"]
    for model, accuracy, base, row in (("quick", 60, 5, 5), ("good", 80, 20, 16)):
        lines += [
            f"{model},{accuracy},{n},{base + row * n - 1},{base + row * n},{base + row * n},9" for n in (1, 2, 3, 4)
        ]
    (folder / "image_profile.csv").write_text("\n".join(lines) + "\n")
    (folder / "twitter_qps.csv").write_text("second,qps\n0,40.0\n1,120.0\n2,60.0\n")
    monkeypatch.setattr(ramsis, "WORKERS", 2)
    monkeypatch.setattr(ramsis, "LOADS", (1200,))
    monkeypatch.setattr(ramsis, "CONSTANT_S", 0.2)
    return folder


def test_profiles_and_arrivals_are_those_published(small, tmp_path):
    found = ramsis.worlds(small, tmp_path / "made", quick=False)
    assert list(found) == ["1200", "1200, known", "twitter"]
    scenario = found["twitter"].scenario()
    assert [model.name for model in scenario.models] == ["quick", "good"]
    assert scenario.models[1].points["n1"][1] == (2, 0.052)
    assert scenario.slo_s == {"image": 0.15} and len(scenario.devices) == 2
    counts = [sum(second <= t < second + 1 for t in scenario.arrivals.times) for second in range(3)]
    assert all(abs(count - rate) < 6 * rate**0.5 for count, rate in zip(counts, (40, 120, 60), strict=True))
    again = ramsis.worlds(small, tmp_path / "made", quick=False)
    assert again["twitter"].digest() == found["twitter"].digest()


def test_the_section_has_all_stacks_and_the_paper_s_figures(small, tmp_path, monkeypatch):
    monkeypatch.setattr(section, "ON_TRACE", ("ramsis", "nereus"))
    page = tmp_path / "page.md"
    arguments = ["--data", str(tmp_path / "proteus"), "--kept", str(tmp_path / "kept"), "--page", str(page)]
    assert evaluation.main([*arguments, "--processes", "1", "--only", "ramsis"]) == 0
    text = read_sections(page.read_text())["ramsis"]
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}
    assert set(rows) == set(section.STACKS)
    assert "| RAMSIS | 0.50% |" in text
    assert "A policy of this world (2 models that are not dominated" in text


def test_missing_files_are_named(tmp_path, capsys):
    arguments = [
        "--data",
        str(tmp_path / "proteus"),
        "--kept",
        str(tmp_path / "kept"),
        "--page",
        str(tmp_path / "p.md"),
    ]
    evaluation.main([*arguments, "--processes", "1", "--only", "ramsis"])
    assert "cannot be read" in (tmp_path / "p.md").read_text() + capsys.readouterr().err
