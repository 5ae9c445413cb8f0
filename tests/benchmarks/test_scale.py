"""The short form of the benchmark of a growing control plane.

It has a few members that exist in the protocol alone.
"""

from __future__ import annotations

import json

import pytest

from benchmarks.scale import __main__ as scale

pytestmark = pytest.mark.wide


def test_a_few_nodes_are_measured_in_all_phases(tmp_path, capsys, monkeypatch):
    # A benchmark waits for late upkeep; no figure here depends on it.
    monkeypatch.setattr(scale, "QUIET_S", 3.0)
    out = tmp_path / "figures.json"
    options = ["--nodes", "3", "--devices", "6", "--applications", "2", "--seconds", "2", "--no-pages"]
    assert scale.main([*options, "--out", str(out)]) == 0
    (found,) = json.loads(out.read_text())
    assert (found["nodes"], found["devices"]) == (3, 6)
    for phase in ("join", "settle", "steady", "plan", "reconnect", "settle_again"):
        assert found[phase]["plane_s"] >= 0 and found[phase]["cores"]["web"] >= 0
    assert found["steady"]["messages_per_s"] > 0
    assert found["settle"]["plans"] >= 1 and found["members_refused"] == 0
    assert found["plan"]["push_s"] >= 0 and found["reconnect_s"] > 0
    assert "| steady: messages/s |" in capsys.readouterr().out
