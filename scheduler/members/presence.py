"""Distinguish silent members from an absence of the control plane itself.

After web was down, every member looks silent, and members reconnect one by one within their longest back-off. A plan
made for the first one alone would make all others unload their models. So silence counts only once the control plane
has received members' messages for a while.
"""

from __future__ import annotations

from registry import clock
from scheduler import live

#: steady stamps of the last message, and of the first one after an absence
SEEN = live.key("members_seen")
RETURNING = live.key("members_returning")
#: seconds without any member's message after which the control plane itself counts as away
ABSENT_S = 10
#: seconds that all members take to reconnect: longest back-off, its jitter and a join
RETURN_S = 20


def seen() -> None:
    """Record that a member's message was received and stored."""
    redis, now = live.client(), clock.stamp()
    if clock.age(redis.getset(SEEN, now)) > ABSENT_S:
        redis.set(RETURNING, now)


def silence_counts() -> bool:
    """Whether a silent member is really away."""
    last, returned = live.client().mget(SEEN, RETURNING)
    return clock.age(last) <= ABSENT_S and clock.age(returned) > RETURN_S
