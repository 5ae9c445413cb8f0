"""Waiting for a condition while a server starts or stops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

#: seconds between two looks
LOOK_EVERY_S = 0.01


async def wait_until(true: Callable[[], bool], seconds: float) -> bool:
    """Wait until ``true`` returns so; False: it did not within ``seconds``."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() >= end:
            return False
        await asyncio.sleep(LOOK_EVERY_S)
    return True
