"""Per-second statistics, kept in Redis streams for a quarter of an hour and passed on to browsers.

Members send ages, not clock readings. An entry is stored with the steady moment of its second; readers get unix time as
the wall clock shows it now, so that history stays in one piece when that clock is set. Streams are bounded by their
length: Redis makes entries' ids from the wall clock, and after a step back goes on with ids of the future.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from redis.exceptions import OutOfMemoryError

from registry import clock
from workers import log
from workers.protocol.control import GatewayStats, NodeStats

from . import live

logger = log.get("telemetry")

KEEP_S = 900
#: entries of a stream: a quarter of an hour of as many members, less of more
MEMBERS = 16
#: gateways report once a second; an older report says nothing about now
RECENT_S = 4
#: entries that are read at once, newest first
CHUNK = 256
#: items/s of one application at one gateway that can be; what a member reports beyond is a mistake
LARGEST_RATE = 1e7
GATEWAY_STREAM = "nereus:gateway_seconds"
NODE_STREAM = "nereus:node_seconds"
#: by "APPLICATION SIZE", a stamp of the last second in which queries of that size class arrived
SIZES_HASH = "nereus:sizes_arrived"


def _ago(stats: GatewayStats | NodeStats) -> float:
    """Seconds since the second ended, as far as that can be."""
    return min(stats.at, float(KEEP_S)) if stats.at > 0 else 0.0


def gateway_second(gateway: str, stats: GatewayStats, now: float) -> dict[str, Any]:
    """A gateway's second as browsers and the demand estimate read it."""
    return {
        "t": int(now - _ago(stats)),
        "gateway": gateway,
        "ready": stats.ready,
        "serving": list(stats.serving),
        "applications": {name: msgspec.to_builtins(counts) for name, counts in stats.applications.items()},
    }


def node_second(node: str, stats: NodeStats, now: float) -> dict[str, Any]:
    """A node's second as browsers read it."""
    return {
        "t": int(now - _ago(stats)),
        "node": node,
        "devices": [msgspec.to_builtins(device) for device in stats.devices],
    }


def record(stream: str, second: dict[str, Any]) -> None:
    """Append a second, whose ``t`` is by the wall clock of now, and drop the oldest."""
    ago = clock.wall() - second["t"]
    # Else the clock was set in this very moment.
    at = clock.stamp(clock.steady() - (ago if 0 <= ago <= KEEP_S else 0.0))
    fields = {"d": live.dumps(second), "at": at}
    try:
        live.client().xadd(stream, fields, maxlen=KEEP_S * MEMBERS, approximate=True)
    except OutOfMemoryError:
        # The newest seconds are worth more than the oldest.
        live.client().xtrim(stream, maxlen=KEEP_S, approximate=False)
        raise
    arrived = {
        f"{name} {size}": at
        for name, counts in second.get("applications", {}).items()
        for size, items in counts.get("arrived_by_size", {}).items()
        if items
    }
    if arrived:
        live.client().hset(SIZES_HASH, mapping=arrived)


def _newest_first(stream: str) -> Iterator[tuple[str, dict[str, str]]]:
    last = "+"
    while entries := live.client().xrevrange(stream, max=last, count=CHUNK):
        yield from entries
        last = "(" + entries[-1][0]


def _read(stream: str, seconds: float) -> list[tuple[float, dict[str, Any]]]:
    """(steady moment, second) of the last ``seconds``, oldest first; entries of another boot are left out."""
    now, ahead = clock.steady(), clock.wall() - clock.steady()
    found = []
    for _, fields in _newest_first(stream):
        moment = clock.read(fields.get("at"))
        # Reports arrive within a second or two, so the first that is far too old ends the search.
        if moment is None or now - moment > seconds + RECENT_S:
            break
        if now - moment <= seconds:
            found.append((moment, {**json.loads(fields["d"]), "t": round(moment + ahead)}))
    found.reverse()
    return found


def history(seconds: float = 300) -> list[dict[str, Any]]:
    """History for the live page: ``{"event", "data"}``, oldest first."""
    merged = [
        (moment, {"event": name, "data": data})
        for name, stream in (("gateway_second", GATEWAY_STREAM), ("node_second", NODE_STREAM))
        for moment, data in _read(stream, seconds)
    ]
    merged.sort(key=lambda item: item[0])
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
                name: {int(size): items for size, items in sizes.items() if _possible(items)}
                for name, counts in data["applications"].items()
                if (sizes := counts.get("arrived_by_size"))
            },
        )
        for data in entries
    ]


def sizes_arrived(within_s: float) -> dict[str, set[int]]:
    """Size classes by application with arrivals within ``within_s`` seconds; older ones are deleted."""
    found, forgotten = {}, []
    for key, at in live.client().hgetall(SIZES_HASH).items():
        if clock.age(at) > within_s:
            forgotten.append(key)
            continue
        name, _, size = key.rpartition(" ")
        found.setdefault(name, set()).add(int(size))
    if forgotten:
        live.client().hdel(SIZES_HASH, *forgotten)
    return found


def _possible(items: Any) -> bool:
    return isinstance(items, int | float) and 0 <= items <= LARGEST_RATE


def sum_arrivals(entries: Iterable[dict[str, Any]]) -> list[tuple[int, dict[str, float]]]:
    """Gateways' seconds, added up by second; an application's count that cannot be is left out.

    A gateway whose reports come near the turn of a second has two in one second and none in the next, now and then;
    the second of two belongs to the one after, or every other second would seem twice as busy.
    """
    total: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    last: dict[str, int] = {}
    bad: set[str] = set()
    for data in entries:
        gateway, t = data["gateway"], data["t"]
        if last.get(gateway) == t:
            t += 1
        last[gateway] = t
        for name, counts in data["applications"].items():
            rows = counts.get("arrived_rows")
            if _possible(rows):
                total[t][name] += rows
            else:
                bad.add(f"{gateway}: {name}")
    if bad:
        logger.warning("arrivals_impossible", of=sorted(bad)[:10], limit=LARGEST_RATE)
    return [(t, dict(total[t])) for t in sorted(total)]
