"""The times at which a gateway's process looks after its queries and reports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from workers import log

from .bursts import BurstDetector

logger = log.get("gateway")

#: seconds between the end of a slot of arrivals and its tick, since an event loop's timers count milliseconds
AFTER_S = 0.002
#: seconds after which one of several gateways accepts connections, even if it cannot serve yet; and seconds between two
#: checks whether it can
PREPARE_S, LOOK_EVERY_S = 1.0, 0.01


async def prepared(ready: Callable[[], bool], within_s: float = PREPARE_S) -> None:
    """Wait until this process can serve."""
    end = time.monotonic() + within_s
    while not ready() and time.monotonic() < end:
        await asyncio.sleep(LOOK_EVERY_S)


async def tick(slot: Callable[[float], None], each_second: Callable[[], None]) -> None:
    """Call ``slot`` after each slot of arrivals, and ``each_second`` once a second."""
    second = time.monotonic() + 1.0
    while True:
        await asyncio.sleep(BurstDetector.slot_ends_in(time.monotonic()) + AFTER_S)
        try:
            now = time.monotonic()
            slot(now)
            if now >= second:
                second = max(second + 1.0, now)
                each_second()
        except Exception:
            logger.exception("tick_failed")
