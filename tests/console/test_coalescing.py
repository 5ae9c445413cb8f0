"""Runs that are shared by those who ask at about the same time."""

from __future__ import annotations

import asyncio

import pytest

from console.coalescing import by_key


async def test_each_gets_a_run_that_began_after_it_asked():
    runs, go_on = [], asyncio.Event()

    async def run(keys: frozenset[str]) -> dict[str, int]:
        runs.append(len(runs))
        number = len(runs)
        await go_on.wait()
        return dict.fromkeys(keys, number)

    ask = by_key(run)
    first = asyncio.create_task(ask("a"))
    while not runs:
        await asyncio.sleep(0)
    later = [asyncio.create_task(ask("ab"[number % 2])) for number in range(5)]
    await asyncio.sleep(0)
    later.pop().cancel()
    go_on.set()
    assert await first == 1
    assert await asyncio.gather(*later) == [2] * 4
    assert await ask("a") == 3


async def test_an_error_reaches_all_and_the_next_run_is_another():
    async def run(keys: frozenset[str]) -> dict:
        raise OSError("away")

    ask = by_key(run)
    for _ in range(2):
        with pytest.raises(OSError, match="away"):
            await ask("a")
