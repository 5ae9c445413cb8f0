"""Fills a control plane's database, run with the plane's settings.

It makes applications, profiled variants and a join token.
"""

from __future__ import annotations

import os
import sys

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


def fill(applications: int) -> None:
    from django.db import transaction

    from registry.models import Application, JoinToken, hash_secret

    with transaction.atomic():
        JoinToken.objects.create(name=TOKEN, token_hash=hash_secret(TOKEN), auto_approve=True)
        for number in range(applications):
            application = Application.objects.create(name=f"app-{number:02}", slo_ms=SLO_MS, signature=SIGNATURE)
            for variant in VARIANTS:
                _variant(application, number, *variant)


def _variant(application, number: int, name: str, accuracy: float, ms: float) -> None:
    from registry.models import Profile, ProfileLatency, Variant

    made = Variant.objects.create(
        application=application,
        name=name,
        digest=f"{number:02x}{name}".ljust(64, "0"),
        size_bytes=10**8,
        accuracy=accuracy,
        state=Variant.State.READY,
    )
    for kind, speed in TYPES.items():
        profile = Profile.objects.create(variant=made, device_type=kind, load_s=0.5, memory_bytes=2**28)
        for batch in BATCHES:
            # Rows of a batch cost less than this many batches of one.
            took = ms / speed * (0.4 + 0.6 * batch)
            ProfileLatency.objects.create(
                profile=profile, batch=batch, p50_ms=took, p95_ms=1.1 * took, mean_ms=1.02 * took, samples=20
            )


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")
    import django

    django.setup()
    fill(int(sys.argv[1]))
