"""Telling a member's silence from the control plane's own absence.

When web was away, every member looks silent, and they come back one by one within their longest back-off. A plan made
from the first one alone would have all others unload their models. So silence counts only while the control plane has
been hearing of members for a while.
"""

from __future__ import annotations

from scheduler import live

HEARD = "nereus:members_heard"
RETURNING = "nereus:members_returning"
#: without a word from any member for so long, the control plane itself was away
ABSENT_S = 10
#: members' longest back-off, its jitter and a join
RETURN_S = 20


def heard() -> None:
    """A member said something."""
    redis = live.client()
    if redis.set(HEARD, 1, ex=ABSENT_S, get=True) is None:
        redis.set(RETURNING, 1, ex=RETURN_S)


def silence_counts() -> bool:
    """Whether a silent member is really away."""
    redis = live.client()
    return bool(redis.exists(HEARD)) and not redis.exists(RETURNING)
