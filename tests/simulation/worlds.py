"""Small scenarios, as files and as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from scheduler.simulation.arrivals import Trace
from scheduler.simulation.files import staged, write_run
from scheduler.simulation.profiles import Model
from scheduler.simulation.results import SimulationResults
from scheduler.simulation.scenario import ControlSettings, Scenario

PROFILES = """application,variant,accuracy_normalized,device_type,batch,p50_ms,p90_ms,mean_ms
faces,small,90,cpu,1,10,11,10
faces,small,90,cpu,2,12,13,12
faces,small,90,cpu,4,16,17,16
faces,large,100,cpu,1,40,44,41
faces,large,100,cpu,2,60,66,61
words,tiny,80,cpu,1,5,6,5
words,tiny,80,cpu,4,11,12,11
words,big,100,gpu,1,20,22,21
"""
SCENARIO = """name = "tiny"
profiles = "profiles.csv"
latency = "p50_ms"
seed = 3
[devices]
cpu = 2
gpu = 1
[slo_ms]
default = 200
[generator]
kind = "poisson"
duration_s = 4
qps = 60
[control]
period_s = 2
"""


def files(folder: Path, scenario: str = SCENARIO, **others: str) -> Path:
    """Write a scenario, its profiles and ``others``, by file name with _ for the dot; the scenario's path."""
    (folder / "profiles.csv").write_text(PROFILES)
    for name, text in others.items():
        (folder / name.replace("_", ".")).write_text(text)
    path = folder / "scenario.toml"
    path.write_text(scenario)
    return path


def written(results: SimulationResults, folder: Path) -> Path:
    """The folder, with the files of a finished run."""
    with staged(folder) as stage:
        write_run(stage, results)
    return folder


def model(application: str, name: str, accuracy: float = 100.0, **points_ms: Mapping[int, float]) -> Model:
    """A variant; ``points_ms``: {batch: ms} by device type."""
    points = {kind: tuple((b, ms / 1000) for b, ms in sorted(p.items())) for kind, p in points_ms.items()}
    return Model(application, name, accuracy, points)


def world(
    models: Iterable[Model], arrivals_ms: Iterable[tuple[float, str]], devices: Iterable[str] = ("cpu",), **options
) -> Scenario:
    """A scenario with SLO 300 ms whose queries arrive when ``arrivals_ms`` says."""
    models = tuple(models)
    names = tuple(dict.fromkeys(m.application for m in models))
    arrivals = sorted((ms / 1000, names.index(name)) for ms, name in arrivals_ms)
    options = {
        "slo_s": dict.fromkeys(names, 0.3),
        "control": ControlSettings(period_s=1000, burst_check_s=1000),
        **options,
    }
    return Scenario(
        name="world",
        models=models,
        arrivals=Trace(names, [t for t, _ in arrivals], [i for _, i in arrivals]),
        devices=tuple((f"{kind}-{i}", kind) for i, kind in enumerate(devices)),
        **options,
    )
