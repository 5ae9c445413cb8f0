"""Readings that upkeep takes of this box, kept in Redis with steady stamps: they end with a boot."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime

from registry import clock
from scheduler import live

DISK, OFFSET, JUMP = live.key("disk_free"), live.key("clock_offset"), live.key("clock_jump")
#: seconds between two samples of the disk, and how many are kept: those at both ends of a day
DISK_EVERY_S, DISK_KEPT = 600.0, 145
#: a rate is not known before samples span a day: an installation or an upload is no trend
LEAST_SPAN_S = 86_400.0
#: seconds by which the wall clock must move against the steady one to count as set
JUMP_S = 60.0
#: seconds after a boot within which a box without a clock of its own gets the time from the network
SETTLING_S = 600.0


@dataclass(frozen=True)
class ClockJump:
    """The wall clock was set. ``by_s``: forward where positive."""

    at: datetime
    by_s: float
    age_s: float


def sample_disk(free: int) -> None:
    """Keep a reading of the free bytes, at most once in :data:`DISK_EVERY_S`."""
    redis = live.client()
    newest = redis.lindex(DISK, 0)
    if newest is not None and clock.age(newest.split()[0]) < DISK_EVERY_S:
        return
    redis.lpush(DISK, f"{clock.stamp()} {free}")
    redis.ltrim(DISK, 0, DISK_KEPT - 1)


def disk_rate() -> float | None:
    """Bytes a second by which free space shrank over a day; None: not known yet."""
    samples = []
    for text in live.client().lrange(DISK, 0, -1):
        stamp, free = text.split()
        moment = clock.read(stamp)
        if moment is None:
            break
        samples.append((moment, int(free)))
    if len(samples) < 2 or samples[0][0] - samples[-1][0] < LEAST_SPAN_S:
        return None
    return (samples[-1][1] - samples[0][1]) / (samples[0][0] - samples[-1][0])


def watch_clock() -> None:
    redis, offset = live.client(), clock.wall() - clock.steady()
    name, _, before = (redis.get(OFFSET) or "").partition(" ")
    by = offset - float(before or offset)
    settling = by > 0 and clock.steady() < SETTLING_S
    if name == clock.boot() and abs(by) > JUMP_S and not settling:
        redis.set(JUMP, live.dumps({"at": clock.stamp(), "wall": clock.wall(), "by": by}))
    redis.set(OFFSET, f"{clock.boot()} {offset}")


def clock_jump() -> ClockJump | None:
    """The latest time that the wall clock was set since this box was booted."""
    text = live.client().get(JUMP)
    if text is None:
        return None
    found = json.loads(text)
    if clock.read(found["at"]) is None:
        return None
    return ClockJump(datetime.fromtimestamp(found["wall"], UTC), found["by"], clock.age(found["at"]))
