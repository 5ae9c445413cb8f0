"""Time of a solve to a certified gap: ``python -m benchmarks solver``.

Devices, variants and applications grow one at a time (as in Fig. 10 of Proteus), and there are three corners; `nereus`,
and `proteus` as published with identical devices counted, on one core.

Worlds are made from the published profiles with a seed: three device types in the proportion 2 : 1 : 1, applications
that are copies of the published ones with latencies of their own, demand split by Zipf's law. Times are CPU time, which
other work on the machine hardly changes. *first* includes reading the profiles; *again* is the median of three solves
at other demands, as a control loop makes them. *served* is the least part of the demand that one of the four plans
serves, *gap* the largest that one certified; a solve that did not reach what was asked for says so.
"""

from __future__ import annotations

import argparse
import csv
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scheduler.allocation import nereus
from scheduler.allocation.problem import (
    Allocation,
    ApplicationDemand,
    CandidateVariant,
    DeviceResources,
    LatencyProfile,
    Problem,
)
from scheduler.stacks.proteus import strategy as proteus

from .figures import markdown

PUBLISHED = Path(__file__).resolve().parents[2] / "shared" / "data" / "proteus" / "profiles.csv"
#: share of devices by type
TYPES = {"cpu": 0.5, "pascal": 0.25, "ampere": 0.25}
SLO_S = 0.3
LARGEST_BATCH = 8
#: items/s: less than that is nothing
LEAST = 1e-3
#: relative gap that is asked for, as by Proteus' authors
GAP = 0.005
SEED = 7
#: share of the demand at which the relaxed problem leaves something out
LOAD = 0.6
#: factors on that demand: the first plan's, and the next ones'
DEMANDS = (1.0, 0.9, 1.1, 1.05)
STRATEGIES = {"nereus": nereus.solve, "proteus": proteus.solve}


@dataclass(frozen=True)
class World:
    """``name`` tells what grows."""

    name: str
    devices: int
    variants: int
    applications: int


#: the published world's size, around which one thing grows at a time
USUAL = (40, 54, 9)
CORNERS = (
    World("corner", 40, 54, 9),
    World("corner", 160, 450, 17),
    World("corner", 10_000, 1000, 100),
)
GROWN = (
    *(World("devices", n, 54, 9) for n in (2, 4, 8, 10, 20, 40, 80, 160, 200, 320, 640, 2500, 10_000)),
    *(World("variants", 40, n, 9) for n in (27, 54, 108, 216, 432)),
    *(World("applications", 160, 6 * n, n) for n in (5, 9, 17, 34, 68)),
)


@dataclass(frozen=True)
class Row:
    """One strategy on one world.

    Attributes:
        gap: relative, the largest that a plan certified.
        first_s, again_s: seconds of CPU time.
        decided: the ways in which its plans were decided.
        served: the least part of the demand that a plan serves.
    """

    world: World
    strategy: str
    first_s: float
    again_s: float
    gap: float
    decided: str
    served: float

    @property
    def reached(self) -> bool:
        return self.gap <= GAP


def published() -> dict[str, list[CandidateVariant]]:
    """The published variants by application.

    Raises:
        FileNotFoundError: the profiles are not beside the checkout.
    """
    points: dict[tuple[str, str, float], dict[str, list[tuple[int, float]]]] = {}
    with PUBLISHED.open() as rows:
        for row in csv.DictReader(rows):
            if int(row["batch"]) <= LARGEST_BATCH:
                key = (row["application"], row["variant"], float(row["accuracy_normalized"]))
                by_type = points.setdefault(key, {})
                by_type.setdefault(row["device_type"], []).append((int(row["batch"]), float(row["p50_ms"]) / 1000))
    found: dict[str, list[CandidateVariant]] = {}
    for (application, name, accuracy), by_type in points.items():
        profiles = {kind: LatencyProfile(tuple(sorted(p)), load_s=1.0) for kind, p in by_type.items()}
        found.setdefault(application, []).append(CandidateVariant(name, application, accuracy, profiles))
    return found


def problem(world: World, seed: int = SEED, demand: float = 1.0) -> Problem:
    """Return a problem of that size; the same for the same seed.

    Args:
        demand: a factor on all of it.
    """
    rng = random.Random(f"{seed}:{world.devices}:{world.variants}:{world.applications}")
    by_application = list(published().values())
    devices = []
    for kind, count in device_counts(world.devices).items():
        devices += [DeviceResources(f"{kind}-{i}", kind) for i in range(count)]
    applications, variants = [], []
    zipf = [1 / (rank + 1) for rank in range(world.applications)]
    for i in range(world.applications):
        name, originals = f"application-{i}", by_application[i % len(by_application)]
        speed = rng.uniform(0.5, 1.0)
        count = world.variants // world.applications + (i < world.variants % world.applications)
        for j in range(count):
            original = originals[j % len(originals)]
            factor, less = (1.0, 0.0) if j < len(originals) else (rng.uniform(0.6, 1.4), rng.uniform(0.0, 4.0))
            variants.append(
                CandidateVariant(
                    f"{name}/{j}",
                    name,
                    original.accuracy - less,
                    {kind: _scaled(profile, speed * factor) for kind, profile in original.profiles.items()},
                )
            )
        applications.append(ApplicationDemand(name, SLO_S, zipf[i] / sum(zipf)))
    total = LOAD * demand * _most(devices, applications, variants)
    return Problem(
        tuple(devices),
        tuple(replace(a, demand=total * a.demand) for a in applications),
        tuple(variants),
        time_limit_s=60.0,
    )


def device_counts(devices: int) -> dict[str, int]:
    """Return numbers of devices by type, as near to their shares as can be.

    Devices that are left over go to the types with the largest remainders, the first of equal ones.
    """
    counts = {kind: int(devices * share) for kind, share in TYPES.items()}
    by_remainder = sorted(TYPES, key=lambda kind: counts[kind] - devices * TYPES[kind])
    for kind in by_remainder[: devices - sum(counts.values())]:
        counts[kind] += 1
    return counts


def _scaled(profile: LatencyProfile, factor: float) -> LatencyProfile:
    return replace(profile, points=tuple((batch, seconds * factor) for batch, seconds in profile.points))


def _most(
    devices: list[DeviceResources], applications: list[ApplicationDemand], variants: list[CandidateVariant]
) -> float:
    """Return the most fluid demand that can just be served, in items/s.

    It is split as the applications' demands are, and exact to a part in a thousand.

    Raises:
        ValueError: not even :data:`LEAST` items/s can be served.
    """
    low, high = 0.0, 1e3 * len(devices)
    while high - low > 1e-3 * high:
        if high < LEAST:
            raise ValueError(f"{len(devices)} devices cannot serve all of {len(applications)} applications")
        total = (low + high) / 2
        asked = Problem(
            tuple(devices), tuple(replace(a, demand=total * a.demand) for a in applications), tuple(variants)
        )
        low, high = (total, high) if nereus.relaxed(asked).served >= total * (1 - 1e-6) else (low, total)
    return low


def measure(worlds: Sequence[World], strategies: Sequence[str] = tuple(STRATEGIES)) -> list[Row]:
    return [_measured(world, name) for world in worlds for name in strategies]


def _measured(world: World, name: str) -> Row:
    first = replace(problem(world), gap=GAP)
    # As in a control loop, the variants stay and the demand changes.
    problems = [
        replace(first, applications=tuple(replace(a, demand=a.demand * factor) for a in first.applications))
        for factor in DEMANDS
    ]
    times: list[float] = []
    plans: list[Allocation] = []
    for one in problems if name == "nereus" else problems[:1]:
        began = time.process_time()
        plans.append(STRATEGIES[name](one))
        times.append(time.process_time() - began)
    served = [
        sum(plan.served.values()) / sum(a.demand for a in one.applications)
        for plan, one in zip(plans, problems, strict=False)
    ]
    decided = ", ".join(sorted({plan.method for plan in plans} - {""}))
    gap, again_s = max(plan.gap for plan in plans), statistics.median(times[1:] or times)
    return Row(world, name, times[0], again_s, gap, decided, min(served))


def cells(row: Row) -> dict[str, object]:
    world = row.world
    return {
        "grows": world.name,
        "devices": world.devices,
        "variants": world.variants,
        "applications": world.applications,
        "strategy": row.strategy,
        "first, ms": 1000 * row.first_s,
        "again, ms": 1000 * row.again_s,
        "decided by": row.decided or "–",
        "served": f"{row.served:.2%}",
        "gap certified": f"{row.gap:.3%}" + ("" if row.reached else " (not reached)"),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    every = (*CORNERS, *GROWN)
    parser = argparse.ArgumentParser(prog="python -m benchmarks solver", description=__doc__.splitlines()[0])
    parser.add_argument("--grows", choices=sorted({world.name for world in every}), help="only these")
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    options = parser.parse_args(arguments)
    worlds = [world for world in every if options.grows in (None, world.name)]
    print(markdown([cells(row) for row in measure(worlds, options.strategies)]))
