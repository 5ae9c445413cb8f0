"""Problems of any size for plan searches, made from the published profiles with a seed.

Three device types in the proportion 2 : 1 : 1, applications that are copies of the published ones with latencies of
their own, demand split by Zipf's law.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from scheduler.allocation import nereus
from scheduler.allocation.problem import ApplicationDemand, CandidateVariant, DeviceResources, LatencyProfile, Problem
from scheduler.simulation.profiles import Model, read_profiles

PUBLISHED = Path(__file__).resolve().parents[2] / "shared" / "data" / "proteus" / "profiles.csv"
#: share of devices by type
TYPES = {"cpu": 0.5, "pascal": 0.25, "ampere": 0.25}
BATCHES = (1, 2, 4, 8)
SLO_S = 0.3


def problem(devices: int, variants: int, applications: int, seed: int = 7, load: float = 0.6) -> Problem:
    """Return a problem of that size; the same for the same seed.

    Args:
        load: share of the demand at which the relaxed problem leaves something out.
    """
    rng = random.Random(f"{seed}:{devices}:{variants}:{applications}")
    published: dict[str, list[Model]] = {}
    for model in read_profiles(PUBLISHED, "p50_ms", BATCHES, TYPES):
        published.setdefault(model.application, []).append(model)
    made, asked = [], []
    zipf = [1 / (rank + 1) for rank in range(applications)]
    for i in range(applications):
        name, models = f"application-{i}", list(published.values())[i % len(published)]
        speed = rng.uniform(0.5, 1.0)
        for j in range(variants // applications + (i < variants % applications)):
            model = models[j % len(models)]
            factor, less = (1.0, 0.0) if j < len(models) else (rng.uniform(0.6, 1.4), rng.uniform(0.0, 4.0))
            profiles = {
                kind: LatencyProfile(tuple((rows, s * (speed * factor)) for rows, s in points), load_s=1.0)
                for kind, points in model.points.items()
            }
            made.append(CandidateVariant(f"{name}/{j}", name, model.accuracy - less, profiles))
        asked.append(ApplicationDemand(name, SLO_S, zipf[i] / sum(zipf)))
    counts = device_counts(devices)
    cluster = tuple(DeviceResources(f"{kind}-{i}", kind) for kind, count in counts.items() for i in range(count))
    total = load * most(cluster, asked, made)
    return Problem(cluster, _scaled(asked, total), tuple(made), time_limit_s=60.0)


def device_counts(devices: int) -> dict[str, int]:
    """Return numbers of devices by type, as near to their shares as can be.

    Devices that are left over go to the types with the largest remainders, the first of equal ones.
    """
    counts = {kind: int(devices * share) for kind, share in TYPES.items()}
    by_remainder = sorted(TYPES, key=lambda kind: counts[kind] - devices * TYPES[kind])
    for kind in by_remainder[: devices - sum(counts.values())]:
        counts[kind] += 1
    return counts


def _scaled(applications: Sequence[ApplicationDemand], factor: float) -> tuple[ApplicationDemand, ...]:
    return tuple(replace(one, demand=factor * one.demand) for one in applications)


def most(
    devices: Sequence[DeviceResources], applications: Sequence[ApplicationDemand], variants: Sequence[CandidateVariant]
) -> float:
    """Return the most fluid demand that can just be served, in items/s.

    It is split as the applications' demands are, and exact to a part in a thousand.
    """
    low, high = 0.0, 1e3 * len(devices)
    while high - low > 1e-3 * high:
        total = (low + high) / 2
        asked = Problem(tuple(devices), _scaled(applications, total), tuple(variants))
        low, high = (total, high) if nereus.relaxed(asked).served >= total * (1 - 1e-6) else (low, total)
    return low
