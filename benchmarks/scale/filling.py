"""Fills a control plane's database, run with the plane's settings.

    python -m benchmarks.scale.filling APPLICATIONS PART

It makes applications with profiled variants, a join token, and the newest PART (0 to 1) of the rows of history that are
kept, for all applications and devices that there are.
"""

from __future__ import annotations

import os
import sys
import time

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
    from scheduler.history.folding import APPLICATION, DEVICE, TIERS, Bucket
    from scheduler.history.models import HistoryName, HistoryRow
    from scheduler.history.packing import pack

    names = list(Application.objects.values_list("name", flat=True))
    devices = list(Device.objects.values_list("ref", flat=True))
    kinds = {"a": names, "v": [f"{name}/{one}" for name in names for one, *_ in VARIANTS], "d": devices}
    wanted = (HistoryName(kind=kind, name=name, used=0) for kind, some in kinds.items() for name in some)
    HistoryName.objects.bulk_create(wanted, ignore_conflicts=True)
    numbers = {(kind, name): pk for kind, name, pk in HistoryName.objects.values_list("kind", "name", "pk")}
    now = int(time.time())
    for tier in TIERS:
        each = 50 * tier.resolution
        load = [each, each, each - 2, 1, 1, 0, 950_000 * each, 950_000 * each, 20_000 * each, 40_000 * each, 80_000]
        busy = [tier.resolution, 5_000 * tier.resolution, *[0] * (len(DEVICE) - 2)]
        assert len(load) == len(APPLICATION)
        bucket = Bucket(
            tier.resolution,
            dict.fromkeys(kinds["a"], load),
            dict.fromkeys(kinds["v"], each // len(VARIANTS)),
            dict.fromkeys(devices, busy),
        )
        packed = pack(bucket, lambda *key: numbers[key])._asdict()
        last = now - now % tier.resolution
        ages = range(tier.resolution, round(tier.keep * part + 1) * tier.resolution, tier.resolution)
        rows = (HistoryRow(resolution=tier.resolution, start=last - age, **packed) for age in ages)
        HistoryRow.objects.bulk_create(rows, ignore_conflicts=True, batch_size=AT_ONCE)


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
