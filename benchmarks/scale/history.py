"""Adds rows of history to a database: a day's rise and fall with noise.

    python -m benchmarks.scale.history PART

PART (0 to 1) of the rows of each resolution that are kept, the newest ones. Run with the plane's settings.
"""

from __future__ import annotations

import math
import os
import random
import sys
import time
from collections.abc import Iterator

DAY = 86400
VARIANTS = 5
#: seconds of a day whose rows are alike
PART = 900
#: rows that one statement stores
AT_ONCE = 200


def fill(part: float) -> None:
    from registry.models import Application, Device
    from scheduler.history.folding import TIERS
    from scheduler.history.models import HistoryRow

    names = _names(
        list(Application.objects.order_by("name").values_list("name", flat=True)),
        list(Device.objects.order_by("ref").values_list("ref", flat=True)),
    )
    for tier in reversed(TIERS):
        for rows in _batches(tier, round(tier.keep * part), int(time.time()), names):
            HistoryRow.objects.bulk_create(rows, ignore_conflicts=True)


def _names(applications: list[str], devices: list[str]) -> dict[tuple[str, str], int]:
    from scheduler.history.models import HistoryName

    wanted = [("a", name) for name in applications]
    wanted += [("v", f"{name}/variant-{i}") for name in applications for i in range(VARIANTS)]
    wanted += [("d", ref) for ref in devices]
    HistoryName.objects.bulk_create((HistoryName(kind=k, name=n, used=0) for k, n in wanted), ignore_conflicts=True)
    return {(kind, name): pk for kind, name, pk in HistoryName.objects.values_list("kind", "name", "pk")}


def _batches(tier, rows: int, now: int, names: dict[tuple[str, str], int]) -> Iterator[list]:
    from scheduler.history.models import HistoryRow
    from scheduler.history.packing import pack

    last, made, packed = now - now % tier.resolution - tier.resolution, [], {}
    for index in range(rows, 0, -1):
        start = last - index * tier.resolution
        # Rows are compressed one by one, so days that are alike take as much as others.
        part = start % DAY // PART
        if part not in packed:
            packed[part] = pack(_bucket(start, tier.resolution, names), lambda *key: names[key])
        made.append(HistoryRow(resolution=tier.resolution, start=start, **packed[part]._asdict()))
        if len(made) == AT_ONCE:
            yield made
            made = []
    yield made


def _bucket(start: int, seconds: int, names: dict[tuple[str, str], int]):
    from scheduler.history.folding import Bucket

    bucket, noise = Bucket(seconds), random.Random(start)
    day = 1.2 + math.sin(2 * math.pi * (start % DAY) / DAY)
    for (kind, name), number in names.items():
        if kind == "a":
            arrived = round(seconds * (5 + number % 40) * day * noise.uniform(0.9, 1.1))
            late, dropped = round(arrived * noise.uniform(0, 0.01)), round(arrived * noise.uniform(0, 0.004))
            in_time, accuracy = arrived - late - dropped, noise.uniform(93, 99)
            answered, p95 = in_time + late, round(1000 * noise.uniform(20, 60))
            sums = [arrived, arrived, in_time, late, dropped, 0, round(in_time * accuracy * 9000)]
            sums += [round(in_time * accuracy * 10_000), answered * p95 // 2, answered * p95, 2 * p95]
            bucket.applications[name] = sums
            for i in range(VARIANTS):
                bucket.variants[f"{name}/variant-{i}"] = round(answered / VARIANTS * noise.uniform(0.8, 1))
        elif kind == "d":
            busy, watts = noise.uniform(0.2, 0.9), noise.uniform(60, 300)
            load = [seconds, round(seconds * busy * 10_000), 0, round(seconds * noise.uniform(0, 5)), seconds << 32]
            sensors = [seconds, round(seconds * (350 + busy * 300)), seconds, round(seconds * watts * 1000)]
            bucket.devices[name] = [*load, *sensors]
    return bucket


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")
    import django

    django.setup()
    fill(float(sys.argv[1]))
