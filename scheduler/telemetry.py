"""Per-second statistics, kept in Redis streams for a quarter of an hour and passed on to browsers.

Entries carry the second that they describe (``t``, unix time of this box: members send ages, not clock readings).
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from workers.protocol.control import GatewayStats, NodeStats

from . import live

KEEP_S = 900
#: gateways report once a second; an older report says nothing about now
RECENT_S = 4
GATEWAY_STREAM = "nereus:gateway_seconds"
NODE_STREAM = "nereus:node_seconds"
#: by "APPLICATION SIZE", the last second in which queries of that size class arrived
SIZES_HASH = "nereus:sizes_arrived"


def gateway_second(gateway: str, stats: GatewayStats, now: float) -> dict[str, Any]:
    """A gateway's second as browsers and the demand estimate read it."""
    return {
        "t": int(now - max(stats.at, 0.0)),
        "gateway": gateway,
        "ready": stats.ready,
        "serving": list(stats.serving),
        "applications": {name: msgspec.to_builtins(counts) for name, counts in stats.applications.items()},
    }


def node_second(node: str, stats: NodeStats, now: float) -> dict[str, Any]:
    """A node's second as browsers read it."""
    return {
        "t": int(now - max(stats.at, 0.0)),
        "node": node,
        "devices": [msgspec.to_builtins(device) for device in stats.devices],
    }


def record(stream: str, second: dict[str, Any]) -> None:
    """Append to a stream and drop what is older than :data:`KEEP_S`."""
    oldest = int((time.time() - KEEP_S) * 1000)
    live.client().xadd(stream, {"d": live.dumps(second)}, minid=oldest, approximate=True)
    arrived = {
        f"{name} {size}": second["t"]
        for name, counts in second.get("applications", {}).items()
        for size, items in counts.get("arrived_by_size", {}).items()
        if items
    }
    if arrived:
        live.client().hset(SIZES_HASH, mapping=arrived)


def _read(stream: str, seconds: float) -> list[tuple[str, dict[str, Any]]]:
    start = int((time.time() - seconds) * 1000)
    return [(entry, json.loads(fields["d"])) for entry, fields in live.client().xrange(stream, min=start)]


def history(seconds: float = 300) -> list[dict[str, Any]]:
    """History for the live page: ``{"event", "data"}``, oldest first."""
    merged = [
        (entry, {"event": name, "data": data})
        for name, stream in (("gateway_second", GATEWAY_STREAM), ("node_second", NODE_STREAM))
        for entry, data in _read(stream, seconds)
    ]
    merged.sort(key=lambda item: tuple(int(part) for part in item[0].split("-")))
    return [item for _, item in merged]


def gateway_seconds(seconds: float) -> list[dict[str, Any]]:
    """Gateways' last seconds, oldest first."""
    return [data for _, data in _read(GATEWAY_STREAM, seconds)]


def serving(gateways: Iterable[str]) -> set[str]:
    """Applications that every one of the gateways answers, by their latest reports; none if one is silent."""
    latest: dict[str, set[str]] = {}
    for data in gateway_seconds(RECENT_S):
        latest[data["gateway"]] = set(data.get("serving", ()))
    found = [latest.get(gateway, set()) for gateway in gateways]
    return set.intersection(*found) if found else set()


def arrivals_by_size(entries: Iterable[dict[str, Any]]) -> list[tuple[int, dict[str, dict[int, int]]]]:
    """Items that arrived in gateways' seconds by size class: (t, {application: {size class: items}}) of each, with the
    applications that have more than one class."""
    return [
        (
            data["t"],
            {
                name: {int(size): items for size, items in sizes.items()}
                for name, counts in data["applications"].items()
                if (sizes := counts.get("arrived_by_size"))
            },
        )
        for data in entries
    ]


def sizes_arrived(within_s: float) -> dict[str, set[int]]:
    """Size classes by application with arrivals within ``within_s`` seconds; older ones are deleted."""
    oldest, found, forgotten = time.time() - within_s, {}, []
    for key, t in live.client().hgetall(SIZES_HASH).items():
        if float(t) < oldest:
            forgotten.append(key)
            continue
        name, _, size = key.rpartition(" ")
        found.setdefault(name, set()).add(int(size))
    if forgotten:
        live.client().hdel(SIZES_HASH, *forgotten)
    return found


def sum_arrivals(entries: Iterable[dict[str, Any]]) -> list[tuple[int, dict[str, float]]]:
    """Gateways' seconds, added up by second.

    A gateway whose reports come near the turn of a second has two in one second and none in the next, now and then;
    the second of two belongs to the one after, or every other second would seem twice as busy.
    """
    total: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    last: dict[str, int] = {}
    for data in entries:
        gateway, t = data["gateway"], data["t"]
        if last.get(gateway) == t:
            t += 1
        last[gateway] = t
        for name, counts in data["applications"].items():
            total[t][name] += counts["arrived_rows"]
    return [(t, dict(total[t])) for t in sorted(total)]
