"""Per-second events for browsers, made smaller.

Fields that no page reads, zeros, and digits that are not shown are left out. A second of a large cluster is most of the
cost of an open console, since it is compressed for each browser separately.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: counts that pages add up; those that are not there are 0
COUNTS = ("arrived", "in_time", "late", "dropped", "failed", "normalized_sum", "p95_ms")
#: counts of a device; those that are not there are 0
DEVICE = ("queued_rows", "memory_bytes", "plan_version")


def slim(event: Mapping[str, Any]) -> Mapping[str, Any]:
    data = event["data"]
    if event["event"] == "gateway_second":
        applications = {name: _counts(counts) for name, counts in data["applications"].items()}
        return {"event": event["event"], "data": {**data, "applications": applications}}
    if event["event"] == "node_second":
        return {"event": event["event"], "data": {**data, "devices": [_device(one) for one in data["devices"]]}}
    return event


def _counts(counts: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: round(counts[name], 3) for name in COUNTS if counts.get(name)}
    return found | {"by_variant": counts["by_variant"]} if counts.get("by_variant") else found


def _device(second: Mapping[str, Any]) -> dict[str, Any]:
    found = {"device": second["device"]} | {name: second[name] for name in DEVICE if second.get(name)}
    found |= {name: round(second[name], 3) for name in ("busy", "profiling") if second.get(name)}
    found |= {name: round(second[name], 1) for name in ("celsius", "watts") if second.get(name) is not None}
    ran = [one for one in second.get("variants", ()) if one.get("rows") or one.get("batches")]
    return found | {"variants": [_ran(one) for one in ran]} if ran else found


def _ran(one: Mapping[str, Any]) -> dict[str, Any]:
    found = {"variant": one["variant"], "rows": one["rows"], "batches": one["batches"]}
    drift = round(one.get("drift", 0.0), 2)
    return found | {"drift": drift} if drift > 1 else found
