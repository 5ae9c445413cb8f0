"""Drive the demo's load for a fixed time and return the outcome.

For benchmarks and tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from .counts import QueryCounts
from .drive import Clients, Driver, QueryStream, until_ready
from .manifest import DemoApplication, applications
from .rates import LoadCapacity, RateProfile

#: queries that may wait for an answer at once; ample for what the demo's bursts leave waiting within any SLO
IN_FLIGHT = 512
#: how long an answer is waited for, in SLOs: a query so late is lost to any client
PATIENCE = 10


def streams(
    capacities: Mapping[str, LoadCapacity], seed: int = 0, demo: tuple[DemoApplication, ...] | None = None
) -> list[QueryStream]:
    """Return a stream of queries for each application that has a capacity.

    Their waves and bursts are spread evenly over the cycle.
    """
    chosen = [a for a in (applications() if demo is None else demo) if a.name in capacities]
    return [
        QueryStream(application, RateProfile(capacities[application.name], seed + place, place / len(chosen)), seed)
        for place, application in enumerate(chosen)
    ]


def patience_s(chosen: list[QueryStream]) -> float:
    """Seconds after which an unanswered query counts as failed."""
    return PATIENCE * max(stream.application.slo_ms for stream in chosen) / 1000


async def replay_async(address: str, key: str, seconds: float, chosen: list[QueryStream]) -> dict[str, dict]:
    """As :func:`replay`, within a running loop and with streams of one's own."""
    async with Clients(address, limit=IN_FLIGHT, timeout_s=patience_s(chosen)) as clients:
        await until_ready(clients)
        driver = Driver(clients, chosen, key)
        # One second more than an answer is waited for, so that every query has an end and none is abandoned.
        await driver.run(seconds, grace_s=patience_s(chosen) + 1)
        counts = driver.take()
    total = QueryCounts()
    for part in counts.values():
        total.add(part)
    return {"total": total.summary(), **{name: part.summary() for name, part in counts.items()}}


def replay(
    address: str, key: str, seconds: float, capacities: Mapping[str, LoadCapacity], seed: int = 0
) -> dict[str, dict]:
    """Drive the load for ``seconds`` against a gateway and wait for the last answer.

    Args:
        address: the gateway's V2 gRPC, HOST:PORT. It is waited for until it is ready.
        key: an API key for queries.
        capacities: by application, as :func:`appliance.demo.capacity.measured` gives them.
        seed: the same seed sends the same rows at the same times.

    Returns:
        ``total`` and each application's name: :meth:`QueryCounts.summary`, in which answers after the SLO, refusals,
        failures and queries that could not even be sent are all violations.
    """
    return asyncio.run(replay_async(address, key, seconds, streams(capacities, seed)))
