"""Drives the demo's load for a fixed time and says what came of it; for benchmarks and tests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from .counts import Counts
from .drive import Driver, Stream, until_ready
from .manifest import DemoApplication, applications
from .rates import Capacity, RateProfile
from .wire import HttpPool

#: queries that may wait for an answer at once; ample for what the demo's bursts leave waiting within any SLO
IN_FLIGHT = 512
#: how long an answer is waited for, in SLOs: a query so late is lost to any client
PATIENCE = 10


def streams(
    capacities: Mapping[str, Capacity], seed: int = 0, demo: tuple[DemoApplication, ...] | None = None
) -> list[Stream]:
    """A stream for each application that has a capacity, their waves and bursts spread evenly over the cycle."""
    chosen = [a for a in (applications() if demo is None else demo) if a.name in capacities]
    return [
        Stream(application, RateProfile(capacities[application.name], seed + place, place / len(chosen)), seed)
        for place, application in enumerate(chosen)
    ]


def patience_s(chosen: list[Stream]) -> float:
    """Seconds after which an unanswered query counts as failed."""
    return PATIENCE * max(stream.application.slo_ms for stream in chosen) / 1000


async def replay_async(url: str, key: str, seconds: float, chosen: list[Stream]) -> dict[str, dict]:
    """As :func:`replay`, within a running loop and with streams of one's own."""
    pool = HttpPool(url, limit=IN_FLIGHT, timeout_s=patience_s(chosen))
    try:
        await until_ready(pool)
        driver = Driver(pool, chosen, key)
        # One sweep more than the pool's patience, so that every query has an end and none is abandoned.
        await driver.run(seconds, grace_s=patience_s(chosen) + 2)
        counts = driver.take()
    finally:
        pool.close()
    total = Counts()
    for part in counts.values():
        total.add(part)
    return {"total": total.summary(), **{name: part.summary() for name, part in counts.items()}}


def replay(url: str, key: str, seconds: float, capacities: Mapping[str, Capacity], seed: int = 0) -> dict[str, dict]:
    """Drive the load for ``seconds`` against a gateway and wait for the last answer.

    Args:
        url: the gateway's V2 HTTP address. It is waited for until it is ready.
        key: an API key for queries.
        capacities: by application, as :func:`appliance.demo.capacity.measured` gives them.
        seed: the same seed sends the same rows at the same times.

    Returns:
        ``total`` and each application's name: :meth:`Counts.summary`, in which answers after the SLO, refusals,
        failures and queries that could not even be sent are all violations.
    """
    return asyncio.run(replay_async(url, key, seconds, streams(capacities, seed)))
