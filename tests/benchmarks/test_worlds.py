"""The table of small worlds, and what a part is worth there."""

import json

from benchmarks import worlds


def test_a_world_is_measured_kept_and_compared(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(worlds.LATE, "wrong profiles", {"profile_error": 0.5, **worlds._generated(2, qps=100)})
    kept = tmp_path / "table.json"
    usual = ["--only", "wrong", "--seeds", "2", "--processes", "1"]
    worlds.main([*usual, "--save", str(kept)])
    worlds.main([*usual, "--beside", str(kept)])
    text = capsys.readouterr().out
    assert len(json.loads(kept.read_text())["wrong profiles"]) == 2
    assert "| +0.000 | +0.00 |" in text


def test_every_world_can_be_simulated():
    for name in worlds.LATE:
        assert worlds.scenario(name, 1).arrivals.times


def test_a_part_that_is_taken_away_shows(capsys):
    plan = "8 devices, 9 applications, 1"
    worlds.main(["--only", plan, "--seeds", "1", "--processes", "1", "--without", "scip", "--without", "exchanges"])
    scip, exchanges = capsys.readouterr().out.split("Without exchanges")
    assert scip.splitlines()[4] != exchanges.splitlines()[3]
