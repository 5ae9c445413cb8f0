"""docs/simulator.md says what the simulator takes and gives."""

import re
from dataclasses import fields
from pathlib import Path

from scheduler.simulation import load, simulate
from scheduler.simulation.scenario import ControlSettings
from scheduler.simulation.tables import Table

from .worlds import files, written

PAGE = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()


def test_the_example_is_a_scenario_and_every_key_is_documented(tmp_path, monkeypatch):
    asked = set()
    raw = Table.raw
    monkeypatch.setattr(Table, "raw", lambda self, key, default=None: (asked.add(key), raw(self, key, default))[1])
    example = re.search(r"```toml\n(.*?)```", PAGE, re.S).group(1)
    scenario = load(files(tmp_path, example))
    assert scenario.name == "two boxes" and len(scenario.arrivals) > 1000
    own_names = {"cpu", "gpu", "default", "faces"}
    assert {key for key in asked - own_names if not re.search(rf"[`\[.]{key}[`\]]", PAGE)} == set()
    assert all(f"`{field.name}`" in PAGE for field in fields(ControlSettings))


def test_every_figure_and_file_is_documented(tmp_path):
    scenario = load(files(tmp_path))
    results = simulate(scenario, "proteus")
    plain = {"scenario", "strategy", "batching", "routing", "seed", "devices", "duration_s"}
    assert [key for key in results.summary if key not in plain and f"`{key}`" not in PAGE] == []
    folder = written(results, tmp_path / "out")
    assert [path.name for path in folder.iterdir() if f"`{path.name}`" not in PAGE] == []
