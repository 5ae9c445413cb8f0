"""Time of a solve to a certified gap: ``python -m benchmarks solver``.

Devices, variants and applications grow one at a time (as in Fig. 10 of Proteus), and there are three corners; `nereus`,
and `proteus` as published with identical devices counted, on one core.

Worlds are made from the published profiles with a seed: three device types in the proportion 2 : 1 : 1, applications
that are copies of the published ones with latencies of their own, demand split by Zipf's law. Times are CPU time, which
other work on the machine hardly changes. *first* includes reading the profiles; *again* is the median of three solves
at other demands, as a control loop makes them. *served* is the least part of the demand that one of the four plans
serves, *gap* the largest that one certified; a solve that did not reach what was asked for says so.

Plans *as live* ask for no gap and end at the time limits that the product sets by default; 0.5% counts as reached.
*Crowded* ones are for 95% to 100% of the most that divisible devices could serve.
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
    CERTIFIED,
    Allocation,
    ApplicationDemand,
    CandidateVariant,
    DeviceResources,
    LatencyProfile,
    Problem,
)
from scheduler.stacks.proteus import strategy as proteus

PUBLISHED = Path(__file__).resolve().parents[2] / "shared" / "data" / "proteus" / "profiles.csv"
#: share of devices by type
TYPES = {"cpu": 0.5, "pascal": 0.25, "ampere": 0.25}
SLO_S = 0.3
LARGEST_BATCH = 8
#: items/s: less than that is nothing
LEAST = 1e-3
GAPS = (0.005, 0.001)
SEED = 7
#: share of the demand at which the relaxed problem leaves something out
LOAD = 0.6
#: factors on that demand: the first plan's, and the next ones'
DEMANDS = (1.0, 0.9, 1.1, 1.05)
#: the same by how plans are made as live
LIVE = {"live": DEMANDS, "live, crowded": (1.6, 1.58, 1.62, 1.66)}
#: seconds for a plan as live
LIVE_S = 3.0
#: the same for each of its MILPs
LIVE_MILP_S = 1.0
#: most devices of these
MOST_LIVE = 200

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
        grows: the world's name.
        asked, gap: relative.
        limits: "", or how plans are made as live.
        first_s, again_s: seconds of CPU time.
        decided: the ways in which its plans were decided.
        served: the least part of the demand that a plan serves.
    """

    grows: str
    devices: int
    variants: int
    applications: int
    strategy: str
    asked: float
    first_s: float
    again_s: float
    gap: float
    reached: bool
    decided: str = ""
    served: float = 1.0
    limits: str = ""


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


def measure(quick: bool = False, grows: str | None = None, gaps: Sequence[float] = GAPS) -> list[Row]:
    """Rows in the order of the worlds.

    Args:
        quick: the smaller corners and every other grown world, `nereus` only.
        grows: only worlds of this name, `nereus` only.
    """
    worlds = (*CORNERS[:2], *GROWN[::2]) if quick else (*CORNERS, *GROWN)
    names = ("nereus",) if quick or grows else tuple(STRATEGIES)
    chosen = [world for world in worlds if grows is None or world.name == grows]
    rows = [_measured(world, name, asked) for world in chosen for name in names for asked in gaps]
    live = [world for world in chosen if world.devices <= MOST_LIVE]
    return rows + [_measured(world, "nereus", CERTIFIED, limits) for limits in LIVE for world in live]


def _measured(world: World, name: str, asked: float, limits: str = "") -> Row:
    first = replace(problem(world), gap=asked)
    if limits:
        first = replace(first, gap=0.0, time_limit_s=LIVE_S, milp_s=LIVE_MILP_S)
    # As in a control loop, the variants stay and the demand changes.
    problems = [
        replace(first, applications=tuple(replace(a, demand=a.demand * d) for a in first.applications))
        for d in LIVE.get(limits, DEMANDS)
    ]
    times: list[float] = []
    plans: list[Allocation] = []
    for one in problems if name == "nereus" else problems[:1]:
        began = time.process_time()
        plans.append(STRATEGIES[name](one))
        times.append(time.process_time() - began)
    gap = max(plan.gap for plan in plans)
    served = [
        sum(plan.served.values()) / sum(a.demand for a in one.applications)
        for plan, one in zip(plans, problems, strict=False)
    ]
    return Row(
        world.name,
        world.devices,
        world.variants,
        world.applications,
        name,
        asked,
        times[0],
        statistics.median(times[1:] or times),
        gap,
        gap <= asked,
        ", ".join(sorted({plan.method for plan in plans} - {""})),
        min(served),
        limits,
    )


def render(rows: list[Row]) -> str:
    """A table in Markdown."""
    lines = [
        "| grows | devices | variants | applications | strategy | gap asked | first, ms | again, ms | decided by "
        "| served | gap certified |",
        "|---|---:|---:|---:|---|---:|---:|---:|---|---:|---:|",
    ]
    for r in rows:
        gap = f"{r.gap:.3%}" + ("" if r.reached else " (not reached)")
        asked = f"{r.asked:.1%}" + (f", {r.limits}" if r.limits else "")
        lines.append(
            f"| {r.grows} | {r.devices} | {r.variants} | {r.applications} | {r.strategy} | {asked} | "
            f"{r.first_s * 1000:.1f} | {r.again_s * 1000:.1f} | {r.decided or '–'} | {r.served:.2%} | {gap} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks solver", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and smaller worlds, nereus only")
    parser.add_argument("--grows", choices=sorted({world.name for world in (*CORNERS, *GROWN)}), help="nereus only")
    parser.add_argument("--gap", type=float, action="append", help="asked for, relative (default: 0.005 and 0.001)")
    options = parser.parse_args(arguments)
    print(render(measure(options.quick, options.grows, options.gap or GAPS)))
