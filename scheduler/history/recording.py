"""Recording of the streams in Redis as rows, each second once.

Position and rows change in one transaction, which stores nothing where another process has moved the position since it
was read. So whatever is killed, and however many control planes record, no second is counted twice; and none is lost
that Redis still has, since a row is merged with what it holds.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from redis.exceptions import ResponseError

from scheduler import live, telemetry
from scheduler.history.folding import TIERS, Bucket, Counted, add_gateway_second, add_node_second, coarsened
from scheduler.history.models import HistoryName, HistoryPosition, HistoryRow
from scheduler.history.packing import PackedRow, pack, unpack
from workers import log

logger = log.get("history")

STREAMS = (telemetry.GATEWAY_STREAM, telemetry.NODE_STREAM)
#: entries of a stream that one transaction records
AT_ONCE = 2000
#: transactions of one call: a quarter of an hour of 16 members
MOST = 10
#: a name's last use is stored once in this many folds, a day
USED_EVERY = 8640


@dataclass
class Position:
    """The ids of the last entries that were recorded, by stream, of a :func:`scheduler.live.content`."""

    content: str = ""
    last: dict[str, str] = field(default_factory=dict)
    counted: Counted = field(default_factory=Counted)

    def state(self) -> dict[str, Any]:
        return {"content": self.content, "last": self.last, "counted": self.counted.state()}

    @classmethod
    def of(cls, state: dict[str, Any]) -> Position:
        last = {str(stream): str(id) for stream, id in state.get("last", {}).items()}
        return cls(state.get("content", ""), last, Counted.of(state.get("counted")))


def record() -> int:
    """Record what Redis has beyond the position; the number of entries."""
    recorded = 0
    for _ in range(MOST):
        known, _ = HistoryPosition.objects.get_or_create(pk=1)
        position = Position.of(known.position)
        entries = _read(position)
        if not any(entries.values()):
            break
        buckets = fold(entries, position.counted)
        if not _store(known.folds, position, buckets):
            logger.info("history_recorded_elsewhere")
            break
        recorded += sum(map(len, entries.values()))
    return recorded


def _read(position: Position) -> dict[str, list[tuple[str, dict[str, str]]]]:
    client, content = live.client(), live.content()
    if content != position.content:
        # Redis was emptied or is another one: all that it has is new.
        position.content, position.last = content, {}
    found = {}
    for stream in STREAMS:
        last = position.last.get(stream, "0-0")
        try:
            newest = client.xinfo_stream(stream)["last-generated-id"]
        except ResponseError:
            continue
        if _order(newest) < _order(last):
            # An older copy of the same content: what it has was recorded before, most likely.
            position.last[stream] = newest
            continue
        found[stream] = client.xrange(stream, min=f"({last}", count=AT_ONCE)
        if found[stream]:
            position.last[stream] = found[stream][-1][0]
    return found


def _order(id: str) -> tuple[int, ...]:
    return tuple(map(int, id.split("-")))


def fold(entries: dict[str, list[tuple[str, dict[str, str]]]], counted: Counted) -> dict[int, Bucket]:
    buckets: dict[int, Bucket] = defaultdict(Bucket)
    resolution = TIERS[0].resolution
    for stream, found in entries.items():
        for _, fields in found:
            second = json.loads(fields["d"])
            t = int(second["t"])
            bucket = buckets[t - t % resolution]
            if stream == telemetry.NODE_STREAM:
                add_node_second(bucket, second)
                continue
            add_gateway_second(bucket, second)
            boot, _, moment = fields.get("at", "").partition(":")
            bucket.seconds += counted.new(boot, float(moment or 0.0))
    return dict(buckets)


@transaction.atomic
def _store(folds: int, position: Position, buckets: dict[int, Bucket]) -> bool:
    """Merge buckets into all tiers; False: another process has moved the position."""
    mine = HistoryPosition.objects.filter(pk=1, folds=folds)
    if not mine.update(folds=folds + 1, position=position.state()):
        return False
    changed = {
        (tier.resolution, start): bucket
        for tier in TIERS
        for start, bucket in coarsened(buckets.items(), tier.resolution).items()
    }
    numbers = _numbers(buckets.values(), folds + 1)
    names = {number: name for (_, name), number in numbers.items()}
    for tier in TIERS:
        starts = [start for resolution, start in changed if resolution == tier.resolution]
        for row in HistoryRow.objects.filter(resolution=tier.resolution, start__in=starts):
            bucket = unpack(PackedRow(*(getattr(row, column) for column in PackedRow._fields)), names)
            changed[tier.resolution, row.start].merge(bucket)
    rows = [
        HistoryRow(resolution=resolution, start=start, **pack(bucket, lambda *key: numbers[key])._asdict())
        for (resolution, start), bucket in changed.items()
    ]
    HistoryRow.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["resolution", "start"], update_fields=PackedRow._fields
    )
    return True


def _numbers(buckets: Iterable[Bucket], folds: int) -> dict[tuple[str, str], int]:
    used = set()
    for bucket in buckets:
        for kind, names in (("a", bucket.applications), ("v", bucket.variants), ("d", bucket.devices)):
            used.update((kind, name) for name in names)
    known = {(each.kind, each.name): each for each in HistoryName.objects.all()}
    missing = sorted(used - known.keys())
    if missing:
        made = HistoryName.objects.bulk_create(HistoryName(kind=kind, name=name, used=folds) for kind, name in missing)
        known |= {(each.kind, each.name): each for each in made}
    old = [known[key].pk for key in used if folds - known[key].used >= USED_EVERY]
    if old:
        HistoryName.objects.filter(pk__in=old).update(used=folds)
    return {key: each.pk for key, each in known.items()}
