"""What fronts report to their core, over real sockets."""

from __future__ import annotations

import asyncio
import time

from workers.gateway.core_link import CoreLink
from workers.gateway.remote_front import Fronts
from workers.protocol.fronts import FrontStats
from workers.protocol.gateways import CoreStatus
from workers.protocol.specs import ApplicationStats


class CoreStub:
    """Decides nothing: no query is sent here."""

    catalog = None


def seconds(*arrived: int) -> list[FrontStats]:
    return [FrontStats({"a": ApplicationStats(arrived=count)}) for count in arrived]


async def taken(fronts: Fronts, count: int) -> list[int]:
    found: list[int] = []
    end = time.monotonic() + 60
    while len(found) < count and time.monotonic() < end:
        found += [one["a"].arrived for one in fronts.take_stats()]
        await asyncio.sleep(0.01)
    return found


def core(path) -> Fronts:
    return Fronts(path, CoreStub(), CoreStatus, bytes)


async def test_every_second_of_a_front_reaches_the_core_once(tmp_path):
    path = tmp_path / "core"
    link = CoreLink(f"unix:{path}", "front", front=None, configure=print)
    link.start()
    for second in seconds(1, 2):
        link.report(second)
    fronts = core(path)
    await fronts.start()
    assert await taken(fronts, 2) == [1, 2]
    for second in seconds(3, 4):
        link.report(second)
    await link.close()
    assert await taken(fronts, 2) == [3, 4]
    await fronts.close()
