"""Fills a control plane's database, run with the plane's settings.

    python -m benchmarks.scale.filling APPLICATIONS PART

It makes applications with profiled variants, a join token, and the newest PART (0 to 1) of the rows of history that are
kept: a day's rise and fall with noise, for all applications and devices that there are.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import sys
import time
from collections.abc import Iterator

#: device types, and their speed beside the first one's
TYPES = {"cpu-small": 1.0, "cpu-large": 2.0, "gpu-old": 6.0}
#: (name, accuracy in percent, ms for a row on the first type) of each application's variants
VARIANTS = (("small", 76.0, 2.0), ("medium", 84.0, 5.0), ("large", 90.0, 12.0))
BATCHES = (1, 2, 4, 8, 16)
SLO_MS = 300.0
TOKEN = "scale"
SIGNATURE = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}],
}
DAY = 86400
#: seconds of a day whose rows are alike
ALIKE = 900
#: rows that one statement stores
AT_ONCE = 200


def applications(count: int) -> None:
    from registry.models import Application, JoinToken, Profile, ProfileLatency, Variant, hash_secret

    JoinToken.objects.create(name=TOKEN, token_hash=hash_secret(TOKEN), auto_approve=True)
    for number in range(count):
        application = Application.objects.create(name=f"app-{number:02}", slo_ms=SLO_MS, signature=SIGNATURE)
        for name, accuracy, ms in VARIANTS:
            variant = Variant.objects.create(
                application=application,
                name=name,
                digest=f"{number:02x}{name}".ljust(64, "0"),
                size_bytes=10**8,
                accuracy=accuracy,
                state=Variant.State.READY,
            )
            for kind, speed in TYPES.items():
                profile = Profile.objects.create(variant=variant, device_type=kind, load_s=0.5, memory_bytes=2**28)
                for batch in BATCHES:
                    # Rows of a batch cost less than this many batches of one.
                    took = ms / speed * (0.4 + 0.6 * batch)
                    ProfileLatency.objects.create(
                        profile=profile, batch=batch, p50_ms=took, p95_ms=1.1 * took, mean_ms=1.02 * took, samples=20
                    )


def history(part: float) -> None:
    from registry.models import Application, Device
    from scheduler.history.folding import TIERS
    from scheduler.history.models import HistoryName, HistoryRow

    names = list(Application.objects.order_by("name").values_list("name", flat=True))
    wanted = [("a", name) for name in names] + [("v", f"{name}/{one}") for name in names for one, *_ in VARIANTS]
    wanted += [("d", ref) for ref in Device.objects.order_by("ref").values_list("ref", flat=True)]
    HistoryName.objects.bulk_create((HistoryName(kind=k, name=n, used=0) for k, n in wanted), ignore_conflicts=True)
    numbers = {(kind, name): pk for kind, name, pk in HistoryName.objects.values_list("kind", "name", "pk")}
    for tier in reversed(TIERS):
        rows = _rows(tier, round(tier.keep * part), int(time.time()), numbers)
        while some := list(itertools.islice(rows, AT_ONCE)):
            HistoryRow.objects.bulk_create(some, ignore_conflicts=True)


def _rows(tier, count: int, now: int, numbers: dict[tuple[str, str], int]) -> Iterator:
    from scheduler.history.models import HistoryRow
    from scheduler.history.packing import pack

    last, packed = now - now % tier.resolution - tier.resolution, {}
    for index in range(count, 0, -1):
        start = last - index * tier.resolution
        # Rows are compressed one by one, so days that are alike take as much as others.
        alike = start % DAY // ALIKE
        if alike not in packed:
            packed[alike] = pack(_bucket(start, tier.resolution, numbers), lambda *key: numbers[key])
        yield HistoryRow(resolution=tier.resolution, start=start, **packed[alike]._asdict())


def _bucket(start: int, seconds: int, numbers: dict[tuple[str, str], int]):
    from scheduler.history.folding import Bucket

    bucket, noise = Bucket(seconds), random.Random(start)
    day = 1.2 + math.sin(2 * math.pi * (start % DAY) / DAY)
    for (kind, name), number in numbers.items():
        if kind == "a":
            arrived = round(seconds * (5 + number % 40) * day * noise.uniform(0.9, 1.1))
            late, dropped = round(arrived * noise.uniform(0, 0.01)), round(arrived * noise.uniform(0, 0.004))
            in_time, accuracy = arrived - late - dropped, noise.uniform(93, 99)
            answered, p95 = in_time + late, round(1000 * noise.uniform(20, 60))
            sums = [arrived, arrived, in_time, late, dropped, 0, round(in_time * accuracy * 9000)]
            sums += [round(in_time * accuracy * 10_000), answered * p95 // 2, answered * p95, 2 * p95]
            bucket.applications[name] = sums
        elif kind == "v":
            bucket.variants[name] = round(seconds * 5 * day * noise.uniform(0.8, 1))
        else:
            busy, watts = noise.uniform(0.2, 0.9), noise.uniform(60, 300)
            load = [seconds, round(seconds * busy * 10_000), 0, round(seconds * noise.uniform(0, 5)), seconds << 32]
            sensors = [seconds, round(seconds * (350 + busy * 300)), seconds, round(seconds * watts * 1000)]
            bucket.devices[name] = [*load, *sensors]
    return bucket


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")
    import django

    django.setup()
    from django.db import transaction

    count, part = int(sys.argv[1]), float(sys.argv[2])
    with transaction.atomic():
        if count:
            applications(count)
        if part:
            history(part)
