"""Per-second statistics, kept in Redis streams for a quarter of an hour.

They are passed on to browsers. Members send ages, not clock readings. An entry is stored with the steady moment of its
second; readers get unix time as the wall clock shows it now, so that history stays in one piece when that clock is set.
Streams are bounded by their length: Redis makes entries' ids from the wall clock, and after a step back goes on with
ids of the future.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from redis.exceptions import OutOfMemoryError

from registry import clock
from workers import log
from workers.protocol.control import GatewayStats, NodeStats
from workers.protocol.specs import ApplicationSpec, ApplicationStats

from . import live

logger = log.get("telemetry")

KEEP_S = 900
#: entries of a stream: a quarter of an hour of as many members, less of more
MEMBERS = 16
#: gateways report once a second; an older report says nothing about now
RECENT_S = 4
#: characters of a member's second: of some 1,000 applications, or 2,000 variants on a node's devices
MAX_SECOND = 384 * 1024
#: bytes of a stream; both together are half of what the private Redis may take. Looked at with one second of this many
STREAM_BYTES, WEIGHED_EVERY = 64 * 2**20, 32
#: entries that are read at once, newest first
CHUNK = 256
#: items/s of one application at one gateway that can be; what a member reports beyond is a mistake
LARGEST_RATE = 1e7
GATEWAY_STREAM = live.key("gateway_seconds")
NODE_STREAM = live.key("node_seconds")
#: by "APPLICATION SIZE", a stamp of the last second in which queries of that size class arrived
SIZES_HASH = live.key("sizes_arrived")


def _ago(stats: GatewayStats | NodeStats) -> float:
    return min(stats.at, float(KEEP_S)) if stats.at > 0 else 0.0


def gateway_second(
    gateway: str,
    stats: GatewayStats,
    now: float,
    known: Mapping[str, ApplicationSpec] | None = None,
    variants: Mapping[str, Container[str]] | None = None,
) -> dict[str, Any]:
    """Return a gateway's second as browsers and the demand estimate read it.

    Args:
        known: the applications that exist; others, and size classes that do not exist, are left out.
        variants: the names that exist, by application; others are left out.
    """
    return {
        "t": int(now - _ago(stats)),
        "gateway": gateway,
        "ready": stats.ready,
        "serving": [name for name in stats.serving if known is None or name in known],
        "applications": {
            name: _counts(
                counts, None if known is None else known[name], None if variants is None else variants.get(name, ())
            )
            for name, counts in stats.applications.items()
            if known is None or name in known
        },
    }


def _counts(counts: ApplicationStats, spec: ApplicationSpec | None, variants: Container[str] | None) -> dict[str, Any]:
    found = msgspec.to_builtins(counts)
    # These are kept apart: see :mod:`scheduler.samples`.
    del found["slowest"], found["refused"]
    # Size classes and variants are remembered for long.
    if variants is not None:
        found["by_variant"] = {name: n for name, n in counts.by_variant.items() if name in variants}
        found["named"] = {name: n for name, n in counts.named.items() if name in variants}
    if spec is not None:
        found["arrived_by_size"] = {size: n for size, n in counts.arrived_by_size.items() if size in spec.sizes}
    return found


def node_second(node: str, stats: NodeStats, now: float, own: Container[str] | None = None) -> dict[str, Any]:
    return {
        "t": int(now - _ago(stats)),
        "node": node,
        "devices": [msgspec.to_builtins(device) for device in stats.devices if own is None or device.device in own],
    }


class StreamEntry(NamedTuple):
    """A second in a stream; ``sizes``: stamps of the size classes that arrived in it."""

    stream: str
    fields: dict[str, str]
    sizes: dict[str, str]


def entry(stream: str, second: dict[str, Any]) -> StreamEntry:
    """A second, whose ``t`` is by the wall clock of now.

    Raises:
        ValueError: it is too large.
    """
    ago = clock.wall() - second["t"]
    # Else the clock was set in this very moment.
    at = clock.stamp(clock.steady() - (ago if 0 <= ago <= KEEP_S else 0.0))
    fields = {"d": live.dumps(second), "at": at}
    if len(fields["d"]) > MAX_SECOND:
        raise ValueError(f"a second of statistics: at most {MAX_SECOND} characters, and it has {len(fields['d'])}")
    arrived = {
        f"{name} {size}": at
        for name, counts in second.get("applications", {}).items()
        for size, items in counts.get("arrived_by_size", {}).items()
        if items
    }
    return StreamEntry(stream, fields, arrived)


def record(stream: str, second: dict[str, Any]) -> None:
    record_all([entry(stream, second)])


def record_all(entries: Sequence[StreamEntry]) -> None:
    """Append seconds in one exchange with Redis, and drop the oldest."""
    client, sizes = live.client(), {}
    with client.pipeline(transaction=False) as pipe:
        for one in entries:
            pipe.xadd(one.stream, one.fields, maxlen=KEEP_S * MEMBERS, approximate=True)
            sizes |= one.sizes
        try:
            ids = pipe.execute()
        except OutOfMemoryError:
            # The newest seconds are worth more than the oldest.
            for stream in {one.stream for one in entries}:
                client.xtrim(stream, maxlen=KEEP_S, approximate=False)
            raise
    for stream in {
        one.stream for one, id in zip(entries, ids, strict=True) if int(id.rpartition("-")[0]) % WEIGHED_EVERY == 0
    }:
        _keep_within_bytes(stream)
    if sizes:
        client.hset(SIZES_HASH, mapping=sizes)


def _keep_within_bytes(stream: str) -> None:
    client = live.client()
    if (client.memory_usage(stream, samples=20) or 0) > STREAM_BYTES:
        entries = client.xlen(stream)
        logger.warning("statistics_shortened", stream=stream, entries=entries // 2, limit=STREAM_BYTES)
        client.xtrim(stream, maxlen=entries // 2, approximate=False)


def _newest_first(stream: str) -> Iterator[tuple[str, dict[str, str]]]:
    last = "+"
    while entries := live.client().xrevrange(stream, max=last, count=CHUNK):
        yield from entries
        last = "(" + entries[-1][0]


def texts(stream: str, seconds: float) -> list[tuple[int, str]]:
    """(unix second, JSON) of the last ``seconds`` of this boot, oldest first, for readers that want only a part."""
    now, ahead = clock.steady(), clock.wall() - clock.steady()
    found = []
    for _, fields in _newest_first(stream):
        moment = clock.read(fields.get("at"))
        # Reports arrive within a second or two, so the first that is far too old ends the search.
        if moment is None or now - moment > seconds + RECENT_S:
            break
        if now - moment <= seconds:
            found.append((round(moment + ahead), fields["d"]))
    return found[::-1]


def gateway_seconds(seconds: float) -> list[dict[str, Any]]:
    return [{**json.loads(text), "t": t} for t, text in texts(GATEWAY_STREAM, seconds)]


def node_seconds(seconds: float) -> list[dict[str, Any]]:
    return [{**json.loads(text), "t": t} for t, text in texts(NODE_STREAM, seconds)]


def serving(gateways: Iterable[str]) -> set[str]:
    """Applications that every gateway answers; none if one gateway is silent."""
    latest: dict[str, set[str]] = {}
    for data in gateway_seconds(RECENT_S):
        latest[data["gateway"]] = set(data.get("serving", ()))
    found = [latest.get(gateway, set()) for gateway in gateways]
    return set.intersection(*found) if found else set()


def arrivals_by_size(entries: Iterable[dict[str, Any]]) -> list[tuple[int, dict[str, dict[int, int]]]]:
    """Return items that arrived in gateways' seconds by size class.

    Each second is (t, {application: {size class: items}}), with the applications that have more than one class.
    """
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
    found: dict[str, set[int]] = {}
    for key in live.fresh(SIZES_HASH, within_s):
        name, _, size = key.rpartition(" ")
        found.setdefault(name, set()).add(int(size))
    return found


def _possible(items: Any) -> bool:
    return isinstance(items, int | float) and 0 <= items <= LARGEST_RATE


def sum_arrivals(entries: Iterable[dict[str, Any]], field: str = "arrived_rows") -> list[tuple[int, dict[str, float]]]:
    """Return gateways' seconds, added up by second.

    An application's count that cannot be is left out. A gateway whose reports come near the turn of a second has two in
    one second and none in the next, now and then; the second of two belongs to the one after, or every other second
    would seem twice as busy.

    Args:
        field: what to add up, ``arrived_rows`` (items) or ``arrived`` (queries).
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
            rows = counts.get(field)
            if _possible(rows):
                total[t][name] += rows
            else:
                bad.add(f"{gateway}: {name}")
    if bad:
        logger.warning("arrivals_impossible", of=sorted(bad)[:10], limit=LARGEST_RATE)
    return [(t, dict(total[t])) for t in sorted(total)]
