"""Distinguish silent members from an absence of the control plane itself.

After web was down, every member looks silent, and members reconnect one by one within their longest back-off. A plan
made for the first one alone would make all others unload their models. So silence counts only once the control plane
has received members' messages for a while.
"""

from __future__ import annotations

from scheduler import live

SEEN = "nereus:members_seen"
RETURNING = "nereus:members_returning"
#: seconds without any member's message after which the control plane itself counts as away
ABSENT_S = 10
#: seconds that all members take to reconnect: longest back-off, its jitter and a join
RETURN_S = 20


def seen() -> None:
    """Record that a member sent a message."""
    redis = live.client()
    if redis.set(SEEN, 1, ex=ABSENT_S, get=True) is None:
        redis.set(RETURNING, 1, ex=RETURN_S)


def silence_counts() -> bool:
    """Whether a silent member is really away."""
    redis = live.client()
    return bool(redis.exists(SEEN)) and not redis.exists(RETURNING)
