"""Silent members, distinguished from an absence of the control plane itself.

After web was down, every member looks silent, and members reconnect one by one within their longest back-off. A plan
made for the first one alone would make all others unload their models. So silence counts only once the control plane
has received members' messages for a while. How long a node has been silent is measured here, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from registry import clock
from scheduler import live

#: steady stamps of the last message, and of the first one after an absence
SEEN = live.key("members_seen")
RETURNING = live.key("members_returning")
#: by node, the steady stamp of its last statistics
REPORTED = live.key("node_heard:")
#: seconds for which that is kept; a plan leaves out a node that is silent for far shorter
REPORTED_KEPT_S = 60
#: seconds without any member's message after which the control plane itself counts as away
ABSENT_S = 10
#: seconds that all members take to reconnect: longest back-off, its jitter and a join
RETURN_S = 20


def seen() -> None:
    redis, now = live.client(), clock.stamp()
    if clock.age(redis.getset(SEEN, now)) > ABSENT_S:
        redis.set(RETURNING, now)


def silence_counts() -> bool:
    last, returned = live.client().mget(SEEN, RETURNING)
    return clock.age(last) <= ABSENT_S and clock.age(returned) > RETURN_S


def reported(stamps: Mapping[int, str]) -> None:
    """Record when nodes (by id) sent statistics last, which they do each second."""
    with live.client().pipeline(transaction=False) as pipe:
        for node, at in stamps.items():
            pipe.set(f"{REPORTED}{node}", at, ex=REPORTED_KEPT_S)
        pipe.execute()


def silent_s(nodes: Iterable[int]) -> dict[int, float]:
    """Seconds since the nodes sent statistics; 0 where that does not count."""
    wanted = list(nodes)
    if not wanted or not silence_counts():
        return dict.fromkeys(wanted, 0.0)
    ages = map(clock.age, live.client().mget([f"{REPORTED}{node}" for node in wanted]))
    # A negative age: of an earlier clock.
    return {node: max(0.0, age) if math.isfinite(age) else 0.0 for node, age in zip(wanted, ages, strict=True)}
