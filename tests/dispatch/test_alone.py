"""Queries that run alone make batches of one query, of any number of rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from workers.dispatch.binding import QueryClass
from workers.dispatch.bindings import LIVE, create
from workers.dispatch.latency import LatencyModel
from workers.dispatch.options import OptionSet, ServingOption

from .driver import Query, terms

LATENCY = LatencyModel([(1, 0.01), (2, 0.012), (4, 0.016), (16, 0.03)])
ALONE = ServingOption("v", 100, LATENCY, 16, alone=True)


def test_a_query_of_several_rows_takes_what_the_profile_says_of_them():
    assert ALONE.max_rows == 1
    assert [ALONE.seconds(rows) for rows in (1, 4, 16)] == [0.01, 0.016, 0.03]


@pytest.mark.parametrize("stack", LIVE)
@given(some.lists(some.integers(1, 8), min_size=2, max_size=12))
def test_no_stack_batches_them(stack, rows):
    binding = create(stack)
    binding.configured(terms({"q": (2.0, False)}), 0.0)
    binding.offered({"d": {QueryClass("q"): OptionSet([ALONE])}}, 0.0)
    binding.device_changed("d", 0.0, up=True)
    decisions = binding.arrived([Query(i, "q", 0.0, 2.0, count) for i, count in enumerate(rows)], 0.0)
    seen, now = [], 0.0
    for _ in range(1000):
        for batch in decisions.dispatches:
            assert len(batch.queries) == 1
            seen.append(batch)
        if len(seen) + len(decisions.refusals) >= len(rows) or (not decisions.dispatches and decisions.wake_at > 3):
            break
        if decisions.dispatches:
            now += sum(LATENCY.seconds(batch.rows) for batch in decisions.dispatches)
            for batch in decisions.dispatches[:-1]:
                binding.finished(batch, now, LATENCY.seconds(batch.rows))
            decisions = binding.finished(decisions.dispatches[-1], now, LATENCY.seconds(decisions.dispatches[-1].rows))
        else:
            now = max(now, decisions.wake_at)
            decisions = binding.wake(now)
    assert len(seen) == len(rows)
