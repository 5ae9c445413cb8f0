"""Problems to allocate: random ones for properties, small ones for enumeration, the published one to compare."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import strategies as st

from scheduler.allocation.problem import (
    Allocation,
    ApplicationDemand,
    CandidateVariant,
    DeviceResources,
    LatencyProfile,
    Problem,
)

PUBLISHED = Path(__file__).parents[3] / "shared" / "data" / "proteus" / "profiles.csv"
GIB = 1 << 30


def line(alpha_ms: float, beta_ms: float, batches=(1, 2, 4, 8), memory: int = 0) -> LatencyProfile:
    """A profile whose latency is alpha + beta * batch."""
    return LatencyProfile(tuple((b, (alpha_ms + beta_ms * b) / 1000) for b in batches), memory_bytes=memory)


def variant(name: str, application: str, accuracy: float, /, **profiles: LatencyProfile) -> CandidateVariant:
    return CandidateVariant(name, application, accuracy, profiles)


def with_loaded(problem: Problem, allocation: Allocation) -> Problem:
    loaded: dict[str, set[str]] = {}
    for p in allocation.placements:
        loaded.setdefault(p.device, set()).add(p.variant)
    devices = (replace(d, loaded=frozenset(loaded.get(d.id, ()))) for d in problem.devices)
    return replace(problem, devices=tuple(devices))


def slow_to_load(problem: Problem, load_s: float) -> Problem:
    return replace(
        problem,
        variants=tuple(
            replace(v, profiles={kind: replace(p, load_s=load_s) for kind, p in v.profiles.items()})
            for v in problem.variants
        ),
    )


def published(total: float, counts: Mapping[str, int] | None = None) -> Problem:
    """The published simulator's 40 devices (or ``counts`` by type) and 9 applications, ``total`` items/s by Zipf."""
    points: dict[tuple[str, str, float], dict[str, list[tuple[int, float]]]] = {}
    with PUBLISHED.open() as rows:
        for row in csv.DictReader(rows):
            if int(row["batch"]) <= 8:
                key = (row["application"], row["variant"], float(row["accuracy_normalized"]))
                types = points.setdefault(key, {})
                types.setdefault(row["device_type"], []).append((int(row["batch"]), float(row["p50_ms"]) / 1000))
    variants = tuple(
        CandidateVariant(m, q, accuracy, {t: LatencyProfile(tuple(sorted(p))) for t, p in types.items()})
        for (q, m, accuracy), types in points.items()
    )
    names = sorted({v.application for v in variants})
    zipf = [1 / (rank + 1) for rank in range(len(names))]
    counts = counts or {"cpu": 20, "pascal": 10, "ampere": 10}
    return Problem(
        tuple(DeviceResources(f"{t}{i}", t) for t, n in counts.items() for i in range(n)),
        tuple(ApplicationDemand(q, 0.3, total * share / sum(zipf)) for q, share in zip(names, zipf, strict=True)),
        variants,
    )


def published_or_skip(total: float, counts: Mapping[str, int] | None = None) -> Problem:
    """As :func:`published`; skips where published profiles are missing."""
    try:
        return published(total, counts)
    except FileNotFoundError as missing:
        pytest.skip(f"published profiles are not beside this checkout: {missing.filename}")


@st.composite
def problems(draw, devices: int = 4, applications: int = 5, variants: int = 3, resident=(None, 1, 2, 3)) -> Problem:
    """Random problems: variants without profiles, no demand, latencies that fall with the batch."""
    names = [f"q{i}" for i in range(draw(st.integers(0, applications)))]
    found = []
    for name in names:
        for j in range(draw(st.integers(0, variants))):
            profiles = {}
            for kind in draw(st.sets(st.sampled_from(("slow", "quick")))):
                batches = sorted(draw(st.sets(st.sampled_from((1, 2, 4, 8, 16)), min_size=1)))
                base = draw(st.floats(0.5, 80))
                steps = [draw(st.floats(-0.2, 1.5)) for _ in batches]
                latencies = [base * (1 + max(-0.6, sum(steps[:i]))) / 1000 for i in range(len(batches))]
                memory = draw(st.integers(0, 4)) * GIB
                profiles[kind] = LatencyProfile(tuple(zip(batches, latencies, strict=True)), memory_bytes=memory)
            found.append(CandidateVariant(f"{name}v{j}", name, draw(st.floats(40, 100)), profiles))
    loadable = st.frozensets(st.sampled_from([v.id for v in found]), max_size=2) if found else st.just(frozenset())
    return Problem(
        tuple(
            DeviceResources(
                f"d{i}",
                draw(st.sampled_from(("slow", "quick"))),
                draw(st.sampled_from((None, 3 * GIB, 6 * GIB))),
                draw(st.sampled_from((1.0, 0.95))),
                draw(loadable),
                draw(st.sampled_from(resident)),
            )
            for i in range(draw(st.integers(0, devices)))
        ),
        tuple(
            ApplicationDemand(
                name,
                draw(st.sampled_from((0.05, 0.1, 0.3, 1.0))),
                draw(st.one_of(st.just(0.0), st.floats(0.01, 5), st.floats(5, 400))),
                draw(st.sampled_from((1.0, 1.0, 3.0))),
            )
            for name in names
        ),
        tuple(found),
        time_limit_s=2.0,
    )


@st.composite
def changed(draw, problem: Problem) -> Problem:
    """The problem later: time is reserved, profiles remeasured, and limits, demands and wishes have changed."""
    slower = {v.id: draw(st.sampled_from((1.0, 1.0, 0.8, 1.05, 1.4))) for v in problem.variants}
    larger = {v.id: draw(st.sampled_from((0, 0, GIB))) for v in problem.variants}
    wished = {v.id: draw(st.sampled_from(("", "", "pinned", "excluded"))) for v in problem.variants}
    return replace(
        problem,
        devices=tuple(
            replace(
                d,
                available=draw(st.sampled_from((1.0, 0.95, 0.95, 0.5))),
                max_resident=draw(st.sampled_from((d.max_resident, d.max_resident, 1))),
            )
            for d in problem.devices
            if draw(st.integers(0, 9)) > 0
        ),
        applications=tuple(
            replace(
                a,
                demand=a.demand * draw(st.sampled_from((1.0, 1.0, 0.9, 1.3))),
                slo_s=a.slo_s * draw(st.sampled_from((1.0, 1.0, 0.7))),
                floor=draw(st.sampled_from((0.0, 0.0, 0.3, 1.0))),
            )
            for a in problem.applications
        ),
        variants=tuple(
            replace(
                v,
                profiles={kind: remeasured(p, slower[v.id], larger[v.id]) for kind, p in v.profiles.items()},
                pinned=wished[v.id] == "pinned",
                excluded=wished[v.id] == "excluded",
            )
            for v in problem.variants
        ),
    )


def remeasured(profile: LatencyProfile, factor: float, more_bytes: int) -> LatencyProfile:
    points = tuple((batch, seconds * factor) for batch, seconds in profile.points)
    return replace(profile, points=points, memory_bytes=profile.memory_bytes + more_bytes)
