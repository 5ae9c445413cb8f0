"""Latency curves of an application's variants, with batches that plans may use.

Latencies are in ms, rates in items/s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from registry.models import Variant
from scheduler.frontier import measured_capacity


def curves(variants: Iterable[Variant], slo_ms: float) -> list[dict[str, Any]]:
    """An entry for each variant and device type, for queries of any size."""
    found = []
    for variant in variants:
        for profile in variant.profiles.all():
            points = [
                {"batch": point.batch, "p50_ms": point.p50_ms, "p95_ms": point.p95_ms, "samples": point.samples}
                for point in profile.latencies.all()
                if not point.size
            ]
            best = measured_capacity([(point["batch"], point["p95_ms"]) for point in points], slo_ms)
            found.append(
                {
                    "variant": variant.name,
                    "variant_id": variant.pk,
                    "device_type": profile.device_type,
                    "points": points,
                    "load_s": profile.load_s,
                    "memory_bytes": profile.memory_bytes,
                    "batch": best.batch if best else None,
                    "rate": best.rate if best else None,
                }
            )
    return found


def size_tables(variants: Iterable[Variant], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Latency by batch (rows) and size class (columns), where there are several."""
    found = []
    for variant in variants:
        for profile in variant.profiles.all():
            latencies = {(point.size, point.batch): point for point in profile.latencies.all()}
            smaller = sorted({size for size, _ in latencies if size})
            if not smaller:
                continue
            classes = [*smaller, 0]
            found.append(
                {
                    "variant": variant.name,
                    "device_type": profile.device_type,
                    "columns": [size or max(sizes, default=None) for size in classes],
                    "rows": [
                        {"batch": batch, "cells": [latencies.get((size, batch)) for size in classes]}
                        for batch in sorted({batch for _, batch in latencies})
                    ],
                }
            )
    return found
