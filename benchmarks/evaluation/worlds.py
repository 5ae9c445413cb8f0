"""The scenarios of the evaluation, as values that a scenario file could hold."""

from __future__ import annotations

import gzip
import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from scheduler.simulation.profiles import read_profiles
from scheduler.simulation.scenario import Scenario, load, parse

HERE = Path(__file__).parent
#: seconds of a trace that a quick evaluation takes
QUICK_S = 60.0

#: seeds of a world in which something is drawn by chance, and the keys of scenarios that say so
SEEDS = 3
DRAWN = ("generator", "profile_noise", "profile_error", "stall_ms")

PROTEUS = {
    "profiles": "profiles.csv",
    "latency": "p50_ms",
    "batches": [1, 2, 4, 8],
    "devices": {"cpu": 20, "pascal": 10, "ampere": 10},
    "slo_ms": {"default": 300},
    "seed": 1,
}
#: loads and a network that take time, latencies that vary, and (see :func:`realistic`) few residents
REALISTIC = {"load_time_s": 2.0, "network_ms": 1.0, "profile_noise": 0.05}


@dataclass(frozen=True)
class World:
    """A scenario by its values, and the folder that its paths start from.

    Attributes:
        values: the scenario as JSON, so that the world can be a key.
        first_s: seconds; later arrivals are left out. None: all arrivals count.
    """

    values: str
    folder: Path
    first_s: float | None = None

    def scenario(self) -> Scenario:
        """Read and checked.

        Raises:
            ScenarioError: it cannot be used; the data are missing, for example.
        """
        scenario = parse(json.loads(self.values), self.folder)
        if self.first_s is None:
            return scenario
        arrivals = scenario.arrivals
        count = sum(t < self.first_s for t in arrivals.times)
        cut = replace(arrivals, times=arrivals.times[:count], applications=arrivals.applications[:count])
        return replace(scenario, arrivals=cut)

    def seeds(self) -> tuple[World, ...]:
        """This world by each of its seeds; itself alone where nothing is drawn."""
        values = json.loads(self.values)
        if not any(key in values for key in DRAWN):
            return (self,)
        first = values.get("seed", 0)
        return tuple(replace(self, values=_key({**values, "seed": first + more})) for more in range(SEEDS))

    def digest(self) -> str:
        """Changes with the values and with the content of the files that they name."""
        values = json.loads(self.values)
        files = [_content(self.folder / values[key]) for key in ("profiles", "capacities", "trace") if key in values]
        return hashlib.sha256(json.dumps([self.values, self.first_s, files]).encode()).hexdigest()


@cache
def _content(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "missing"


def published(data: Path, trace: str, quick: bool, **changes: Any) -> World:
    """Return the world of the Proteus simulator on one of its traces.

    Args:
        changes: replace values of the scenario.
    """
    values = {**PROTEUS, "name": trace, "trace": f"traces/{trace}.csv.gz", **changes}
    return World(_key(values), data, QUICK_S if quick else None)


def faster(data: Path, into: Path, trace: str, factor: float, quick: bool) -> World:
    """Return the published world with a faster trace.

    Args:
        into: folder in which the trace is written.
        factor: how many times as fast.
    """
    source, written = data / f"traces/{trace}.csv.gz", into.absolute() / f"{trace}-{factor:g}.csv"
    if source.exists() and not written.exists():
        into.mkdir(parents=True, exist_ok=True)
        with gzip.open(source, "rt") as lines, written.open("w") as file:
            file.write(next(lines))
            for line in lines:
                ms, application = line.split(",")
                file.write(f"{float(ms) / factor:.3f},{application}")
    values = {**PROTEUS, "name": f"{trace}, {factor:g} times as fast", "trace": str(written)}
    return World(_key(values), data, QUICK_S if quick else None)


def every(data: Path, trace: str, period_s: float, quick: bool) -> World:
    """The published world with plans every ``period_s`` seconds."""
    return published(data, trace, quick, name=f"{trace}, every {period_s:g} s", control={"period_s": period_s})


def poisson_like(data: Path, trace: str, quick: bool) -> World:
    """Return the world with Poisson arrivals at the mean rates of ``trace``.

    The applications are the same.
    """
    arrivals = published(data, trace, False).scenario().arrivals
    duration_s = arrivals.times[-1]
    rates = {name: 0.0 for name in arrivals.names}
    for index in arrivals.applications:
        rates[arrivals.names[index]] += 1 / duration_s
    generator = {"kind": "poisson", "duration_s": QUICK_S if quick else round(duration_s), "rates": rates}
    return World(_key({**PROTEUS, "name": f"poisson, rates of {trace}", "generator": generator}), data)


def slo_multiple(data: Path, trace: str, multiple: float, quick: bool) -> World:
    """Return the published world with SLOs as a multiple of the fastest latency.

    Each application's is that of its fastest variant on a CPU device at batch 1.
    """
    fastest = fastest_ms(data / PROTEUS["profiles"])
    slo = {name: round(ms * multiple, 6) for name, ms in fastest.items()}
    return published(data, trace, quick, slo_ms=slo, name=f"{trace}, SLO {multiple:g}x")


def fastest_ms(profiles: Path) -> dict[str, float]:
    """Milliseconds of each application's fastest variant on a CPU device at batch 1."""
    fastest: dict[str, float] = {}
    for model in read_profiles(profiles, PROTEUS["latency"], [1], ["cpu"]):
        ms = model.points["cpu"][0][1] * 1000
        fastest[model.application] = min(ms, fastest.get(model.application, ms))
    return fastest


def realistic(data: Path, trace: str, residents: int, quick: bool) -> World:
    """Return the published world with what it leaves out.

    Args:
        residents: variants on a device at most.
    """
    limits = dict.fromkeys(PROTEUS["devices"], residents)
    name = f"{trace}, realistic, {residents} residents"
    return published(data, trace, quick, **REALISTIC, max_resident=limits, name=name)


def heterogeneous(quick: bool) -> World:
    """Return the world of three boxes and twelve applications.

    It is benchmarks/evaluation/heterogeneous/scenario.toml.
    """
    folder = HERE / "heterogeneous"
    load(folder / "scenario.toml")
    values = tomllib.loads((folder / "scenario.toml").read_text())
    return World(_key(values), folder, QUICK_S if quick else None)


def _key(values: Mapping[str, Any]) -> str:
    # Not sorted: the order of device types is the order of devices.
    return json.dumps(values)
