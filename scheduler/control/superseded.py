"""Requests for a plan that a plan started after them has served.

Requests pile up while the planning worker is away. One plan serves all of them, since it reads the state when it
starts.
"""

from __future__ import annotations

from scheduler import live

#: plans started so far, and the number of the latest start that came to an end
STARTED, SERVED = live.key("plans_started"), live.key("plans_served")


def ticket() -> int:
    """The contents of a request: how many plans were started before it."""
    return int(live.client().get(STARTED) or 0)


def start() -> int:
    """A plan is started; returns its number, for :func:`finish`."""
    return live.client().incr(STARTED)


def finish(number: int) -> None:
    """The plan is made, or there was nothing to plan."""
    live.client().set(SERVED, number)


def superseded(ticket: int) -> bool:
    """Whether a plan that started after the request is made already."""
    started, served = (int(count or 0) for count in live.client().mget(STARTED, SERVED))
    # A plan under way while Redis is emptied ends with a number of the old count: it says nothing in the new one.
    return ticket < served <= started
