"""InfAdapter's world in the evaluation.

It is made from files like the published ones, and shown beside the paper's claims.
"""

from __future__ import annotations

import bz2

import pytest

from benchmarks.evaluation import __main__ as evaluation
from benchmarks.evaluation import infadapter
from benchmarks.evaluation.page import read_sections

pytestmark = pytest.mark.wide

#: queries/s of a core by variant
RATES = {"resnet18": 24, "resnet34": 13, "resnet50": 10, "resnet101": 5, "resnet152": 4}
CALM, SPIKE = [3.0] * 6, [20.0] * 2
SPIKED, STEADY = [*CALM, *SPIKE, 8.0, 5.0, 3.0, 3.0], [4.0] * 12


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Samples of twelve seconds and three cores, as files in the published format."""
    folder = tmp_path / "infadapter"
    folder.mkdir()
    lines = ["variant,cpu_cores,slo_ms,p99_ms,capacity_qps,saturation_qps"]
    for variant, rate in RATES.items():
        for cores in (1, 2, 4, 6, 8, 16, 20):
            lines += [f"{variant},{cores},{slo},,{rate * cores - 1},{rate * cores}" for slo in (750, 1000)]
    (folder / "resnet_cpu_capacity.csv").write_text("\n".join(lines) + "\n")
    seconds = [*STEADY, *[1.0] * 48, *SPIKED, *[0.0] * 48]
    with bz2.open(folder / "twitter_qps.txt.bz2", "wt") as file:
        file.write("".join(f"{rate}\n" for rate in seconds))
    for name, value in {
        "TRAINED_DAYS": 0,
        "TRACE_S": 12,
        "BEFORE": slice(0, 6),
        "SPIKE": slice(6, 8),
        "AFTER": slice(10, 12),
        "PERIOD_S": 3,
        "BUDGET": 3,
        "BETAS": (0.05,),
    }.items():
        monkeypatch.setattr(infadapter, name, value)
    return folder


def test_profiles_capacities_and_samples_are_those_published(small, tmp_path):
    found = infadapter.worlds(small, tmp_path / "made", quick=False)
    assert len(found) == 2 * (len(infadapter.BETAS) + len(infadapter.LEARNING) + 1)
    scenario = found["bursty", 0.05, "trend"].scenario()
    assert [model.name for model in scenario.models] == list(RATES)
    assert scenario.models[0].points["core"] == ((1, pytest.approx(1 / 24)),)
    assert scenario.models[4].load_s == infadapter.VARIANTS["resnet152"].load_s
    assert scenario.models[4].capacities["core"][1] == (2, 7.0)
    assert len(scenario.devices) == 6 and scenario.costs.budget == 3 and scenario.make_before_break
    counts = [sum(second <= t < second + 1 for t in scenario.arrivals.times) for second in range(12)]
    assert counts == SPIKED
    steady = found["steady", None, "trend"].scenario()
    assert len(steady.devices) == 3 and len(steady.arrivals) == sum(STEADY)
    again = infadapter.worlds(small, tmp_path / "made", quick=False)
    assert {key: world.digest() for key, world in again.items()} == {k: world.digest() for k, world in found.items()}


def test_the_section_has_all_stacks_and_a_verdict_for_each_claim(small, tmp_path):
    page = tmp_path / "page.md"
    arguments = ["--data", str(tmp_path / "proteus"), "--kept", str(tmp_path / "kept"), "--page", str(page)]
    assert evaluation.main([*arguments, "--processes", "1", "--only", "infadapter"]) == 0
    text = read_sections(page.read_text())["infadapter"]
    rows = [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]
    weighed = [f"{stack}, beta {beta:g}" for stack in ("infadapter", "ms+") for beta in infadapter.BETAS]
    learning = [f"infadapter, beta 0.05, {name}" for name in infadapter.LEARNING]
    assert rows == 2 * [*weighed, *learning, "vpa+-fast", "vpa+-middle", "vpa+", "nereus"]
    claims = [line for line in text.split("| claims of InfAdapter")[1].splitlines() if line.startswith("|")][1:]
    assert len(claims) == 13
    assert all(
        line.split("|")[3].split(":")[0].strip() in {"reproduced", "refuted", "not comparable"} for line in claims
    )


def test_missing_files_are_named(tmp_path, capsys):
    arguments = [
        "--data",
        str(tmp_path / "proteus"),
        "--kept",
        str(tmp_path / "kept"),
        "--page",
        str(tmp_path / "p.md"),
    ]
    evaluation.main([*arguments, "--processes", "1", "--only", "infadapter"])
    assert "cannot be read" in (tmp_path / "p.md").read_text() + capsys.readouterr().err
