"""The short form of the benchmark of a growing control plane."""

import re

import pytest

from benchmarks.scale import __main__ as scale

pytestmark = pytest.mark.wide


def test_a_few_nodes_are_measured_in_all_phases(capsys, monkeypatch):
    # A benchmark waits for late upkeep; no figure here depends on it.
    monkeypatch.setattr(scale, "QUIET_S", 3.0)
    options = ["--nodes", "3", "--devices", "6", "--applications", "2", "--seconds", "2", "--no-pages"]
    assert scale.main(options) == 0
    found = dict(re.findall(r"^\| (.+?) \| (.*?) \|$", capsys.readouterr().out, re.MULTILINE))
    assert (found["nodes"], found["devices"], found["unsampled"]) == ("3", "6", "")
    for phase in ("all joined", "joined until settled", "plan", "all links cut"):
        assert float(found[f"{phase}: CPU time, s"]) >= 0
    assert float(found["steady: messages/s"]) > 0 and int(found["joined until settled: plans"]) >= 1
    assert float(found["plan: first to last member, s"]) >= 0 and float(found["all links cut: all back, s"]) > 0
