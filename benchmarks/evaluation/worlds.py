"""The scenarios of the evaluation, as values that a scenario file could hold."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from scheduler.simulation.profiles import read_profiles
from scheduler.simulation.scenario import Scenario, parse

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
TRACES = ("zipf_exponential", "medium-normal_load", "zipf_exponential_bursty", "zipf_flat_uniform", "zipf_gamma")
#: loads and a network that take time, latencies that vary, and (see :func:`realistic`) few residents
REALISTIC = {"load_time_s": 2.0, "network_ms": 1.0, "profile_noise": 0.05}


@dataclass(frozen=True)
class World:
    """A scenario by its values (as JSON, so that it can be a key), and the folder that its paths start from."""

    values: str
    folder: Path

    def scenario(self) -> Scenario:
        """Read and checked. Raises ScenarioError: it cannot be used; the data are missing, for example."""
        return parse(json.loads(self.values), self.folder)

    def seeds(self) -> tuple[World, ...]:
        """This world by each of its seeds; itself alone where nothing is drawn."""
        values = json.loads(self.values)
        if not any(key in values for key in DRAWN):
            return (self,)
        first = values.get("seed", 0)
        return tuple(replace(self, values=_key({**values, "seed": first + more})) for more in range(SEEDS))

    def digest(self) -> str:
        values = json.loads(self.values)
        files = [_content(self.folder / values[key]) for key in ("profiles", "capacities", "trace") if key in values]
        return hashlib.sha256(json.dumps([self.values, files]).encode()).hexdigest()


@cache
def _content(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "missing"


def _key(values: Mapping[str, Any]) -> str:
    # Not sorted: the order of device types is the order of devices.
    return json.dumps(values)


def published(data: Path, trace: str, **changes: Any) -> World:
    """The world of the Proteus simulator on one of its traces, with changed values."""
    values = {**PROTEUS, "name": trace, "trace": f"traces/{trace}.csv.gz", **changes}
    return World(_key(values), data)


def realistic(data: Path, trace: str, residents: int) -> World:
    limits = dict.fromkeys(PROTEUS["devices"], residents)
    return published(data, trace, **REALISTIC, max_resident=limits, name=f"{trace}, {residents} residents")


def faster(data: Path, into: Path, trace: str, factor: float) -> World:
    """The published world with a faster trace, which is written into a folder."""
    source, written = data / f"traces/{trace}.csv.gz", into.absolute() / f"{trace}-{factor:g}.csv"
    if source.exists() and not written.exists():
        into.mkdir(parents=True, exist_ok=True)
        with gzip.open(source, "rt") as lines, written.open("w") as file:
            file.write(next(lines))
            for line in lines:
                ms, application = line.split(",")
                file.write(f"{float(ms) / factor:.3f},{application}")
    values = {**PROTEUS, "name": f"{trace}, {factor:g} times as fast", "trace": str(written)}
    return World(_key(values), data)


def poisson_like(data: Path, trace: str) -> World:
    """The published world with Poisson arrivals at the mean rates of ``trace``."""
    arrivals = published(data, trace).scenario().arrivals
    duration_s = arrivals.times[-1]
    rates = {name: 0.0 for name in arrivals.names}
    for index in arrivals.applications:
        rates[arrivals.names[index]] += 1 / duration_s
    generator = {"kind": "poisson", "duration_s": round(duration_s), "rates": rates}
    return World(_key({**PROTEUS, "name": f"poisson, rates of {trace}", "generator": generator}), data)


def slo_multiple(data: Path, trace: str, multiple: float) -> World:
    """The published world with SLOs that are multiples of :func:`fastest_ms`."""
    slo = {name: round(ms * multiple, 6) for name, ms in fastest_ms(data / PROTEUS["profiles"]).items()}
    return published(data, trace, slo_ms=slo, name=f"{trace}, SLO {multiple:g}x")


def fastest_ms(profiles: Path) -> dict[str, float]:
    """Milliseconds of each application's fastest variant on a CPU device at batch 1."""
    fastest: dict[str, float] = {}
    for model in read_profiles(profiles, PROTEUS["latency"], [1], ["cpu"]):
        ms = model.points["cpu"][0][1] * 1000
        fastest[model.application] = min(ms, fastest.get(model.application, ms))
    return fastest
