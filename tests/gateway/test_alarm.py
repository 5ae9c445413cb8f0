"""The alarm rings once, not before its time, and at the newest time that was set."""

from __future__ import annotations

import asyncio
import math
import os
import time

import pytest
import uvloop

from tools.waiting import eventually_async
from workers.alarm import Alarm


class Bell:
    def __init__(self, loop: asyncio.AbstractEventLoop):
        self.rung: list[float] = []
        self.alarm = Alarm(loop, lambda: self.rung.append(time.monotonic()))

    async def until_rung(self, times: int) -> None:
        await eventually_async(lambda: len(self.rung) >= times)


def everywhere(test):

    @pytest.mark.parametrize("make", [uvloop.new_event_loop, asyncio.new_event_loop])
    def on(make):
        async def main():
            bell = Bell(asyncio.get_running_loop())
            try:
                await test(bell)
            finally:
                bell.alarm.close()

        with asyncio.Runner(loop_factory=make) as runner:
            runner.run(main())

    return on


@everywhere
async def test_it_rings_once_its_time_has_come(bell):
    at = time.monotonic() + 0.02
    bell.alarm.set(at)
    assert bell.alarm.at == at
    await bell.until_rung(1)
    assert bell.rung[0] >= at
    assert bell.alarm.at == math.inf
    await asyncio.sleep(0.02)
    assert len(bell.rung) == 1


@everywhere
async def test_the_newest_time_counts(bell):
    bell.alarm.set(time.monotonic() + 100)
    bell.alarm.set(time.monotonic() + 0.001)
    await bell.until_rung(1)
    bell.alarm.set(time.monotonic() + 0.001)
    later = time.monotonic() + 0.05
    bell.alarm.set(later)
    await bell.until_rung(2)
    assert bell.rung[1] >= later - 0.001


@everywhere
async def test_a_time_that_is_over_rings_soon_and_none_not_at_all(bell):
    for past in (time.monotonic() - 1, 0.0, -5.0):
        count = len(bell.rung)
        bell.alarm.set(past)
        await bell.until_rung(count + 1)
    count = len(bell.rung)
    bell.alarm.set(time.monotonic() + 0.005)
    bell.alarm.set(math.inf)
    await asyncio.sleep(0.03)
    assert len(bell.rung) == count


@everywhere
async def test_one_that_was_due_before_it_was_set_anew_does_not_ring_early(bell):
    bell.alarm.set(time.monotonic())
    time.sleep(0.003)
    # The loop has not been notified yet.
    later = time.monotonic() + 0.03
    bell.alarm.set(later)
    await bell.until_rung(1)
    assert bell.rung[0] >= later - 0.001


@everywhere
async def test_it_may_be_set_from_its_own_ringing(bell):
    ring, bell.alarm._ring = bell.alarm._ring, None

    def again():
        ring()
        if len(bell.rung) < 5:
            bell.alarm.set(time.monotonic() + 0.0002)

    bell.alarm._ring = again
    bell.alarm.set(time.monotonic())
    await bell.until_rung(5)
    await asyncio.sleep(0.01)
    assert len(bell.rung) == 5


@everywhere
async def test_a_closed_one_leaves_nothing(bell):
    bell.alarm.set(time.monotonic() + 0.001)
    file = bell.alarm._file
    bell.alarm.close()
    bell.alarm.close()
    await asyncio.sleep(0.01)
    assert bell.rung == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.read(file, 8)
