"""Sizes of an appliance: memory by process, and bytes on the disk and in Redis."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil
import redis

from benchmarks.figures import Row
from benchmarks.harness import ROLES, Appliance, role_of
from benchmarks.pressed import Growth, Limit, growth

MIB = 2**20
MEMORY = Limit(0.15, 24.0, "MiB")
#: growth that is allowed from the day on from which figures must be flat
LIMITS = {
    "database": Limit(0.25, 2.0, "MiB"),
    "Redis": Limit(0.25, 4.0, "MiB"),
    "store": Limit(0.25, 2.0, "MiB"),
    "logs": Limit(0.0, 64.0, "MiB"),
}


def sample(appliance: Appliance) -> dict[str, float]:
    """MiB by what holds them; processes by role."""
    found, home = dict.fromkeys(ROLES, 0.0), appliance.home
    for process in appliance.processes():
        with contextlib.suppress(psutil.Error):
            if role := role_of(process):
                found[role] += process.memory_info().rss / MIB
    found["database"] = sum(_size(path) for path in home.glob("nereus.sqlite3*"))
    found["store"] = sum(_size(path) for path in (home / "models").rglob("*"))
    found["logs"] = sum(_size(path) for path in (home / "logs").rglob("*"))
    client = redis.Redis(unix_socket_path=str(home / "run" / "redis.sock"), socket_timeout=10)
    found["Redis"] = client.info("memory")["used_memory"] / MIB
    client.close()
    return found


def _size(path: Path) -> float:
    try:
        return path.stat().st_size / MIB if path.is_file() else 0.0
    except FileNotFoundError:
        return 0.0


def table(samples: Sequence[tuple[int, dict[str, float]]], rows: int = 13) -> list[Row]:
    places = np.unique(np.linspace(0, len(samples) - 1, min(rows, len(samples))).round().astype(int))
    names = [*LIMITS, *ROLES]
    return [
        {"day": samples[place][0], **{name: samples[place][1].get(name) for name in names}} for place in places.tolist()
    ]


def growths(samples: Sequence[tuple[int, dict[str, float]]], flat_from: int) -> list[Growth]:
    some = [(day, figures) for day, figures in samples if day >= flat_from]
    if len(some) < 2:
        return []
    days = np.array([day for day, _ in some], float)
    part = max(1.0, (days[-1] - days[0]) / 12)
    return [
        growth(name, LIMITS.get(name, MEMORY), days, np.array([figures.get(name, 0.0) for _, figures in some]), part)
        for name in [*LIMITS, *ROLES]
    ]
