"""A faster variant that stands by takes a backlog over, in whole batches, and never a query that insists."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.executor.harness import Executor, application, resident, rows, variant
from workers.protocol.frames import ExecutorState, Result, StatsReport


@pytest.fixture(params=["nereus"])
async def relieved(request, tmp_path, tiny_models):
    """An executor whose plan has the heavy variant (said to take 0.4 s a row), and the quick one standing by."""
    async with Executor(tmp_path) as executor:
        heavy = resident(variant(1, tiny_models["heavy"], accuracy=99.0, name="heavy"), 0.4, max_batch=4)
        quick = resident(variant(2, tiny_models["quick"], accuracy=80.0, name="quick"), 0.001)
        # As plans send it: what relief may take in a turn is the device's to say.
        quick = msgspec.structs.replace(quick, max_batch=1, rate=0.0, time_share=0.0)
        gateway = await executor.peer()
        paths = [tiny_models["heavy"], tiny_models["quick"]]
        executor.apply(1, [heavy], [application(slo_s=4.0, policy=request.param)], paths, relief=[quick])
        await gateway.next(ExecutorState, lambda state: {warm.name for warm in state.warm} == {"heavy", "quick"})
        yield executor, gateway


async def test_it_stands_by_without_being_part_of_the_plan(relieved):
    _, gateway = relieved
    assert {warm.name: warm.planned for warm in gateway.state().warm} == {"heavy": True, "quick": False}


async def test_what_the_planned_variant_can_carry_it_carries(relieved):
    _, gateway = relieved
    for _ in range(3):
        result, _ = await gateway.query(rows(1), budget_s=4.0)
        assert result.variant == "heavy"


async def test_a_backlog_is_served_by_the_faster_one_in_whole_batches_and_nobody_is_refused(relieved):
    executor, gateway = relieved
    answers = [
        result for result, _ in await asyncio.gather(*(gateway.query(rows(1, i), budget_s=4.0) for i in range(200)))
    ]
    assert all(isinstance(answer, Result) for answer in answers)
    by_quick = [answer for answer in answers if answer.variant == "quick"]
    assert len(by_quick) > 100
    assert max(answer.batch_rows for answer in by_quick) > 4
    # Run as they were decided: a batch of relief is one run, not a run a row.
    stats = [v for report in executor.node.of(StatsReport) for v in report.stats.variants if v.variant == 2]
    if stats:
        assert sum(v.batches for v in stats) < len(by_quick)


@pytest.mark.parametrize("relieved", ["no-such-policy"], indirect=True)
async def test_an_application_with_an_unknown_policy_gets_the_default_one_which_relieves(relieved):
    _, gateway = relieved
    answers = [
        result for result, _ in await asyncio.gather(*(gateway.query(rows(1, i), budget_s=4.0) for i in range(200)))
    ]
    assert any(isinstance(answer, Result) and answer.variant == "quick" for answer in answers)


async def test_afterwards_the_planned_variant_is_back(relieved):
    _, gateway = relieved
    await asyncio.gather(*(gateway.query(rows(1, i), budget_s=4.0) for i in range(100)))
    result, _ = await gateway.query(rows(1), budget_s=4.0)
    assert result.variant == "heavy"


@pytest.mark.parametrize("insists", [{"variant": "heavy"}, {"min_accuracy": 95.0}])
async def test_a_query_that_insists_is_never_answered_by_less(relieved, insists):
    _, gateway = relieved
    others = [gateway.query(rows(1, i), budget_s=4.0) for i in range(100)]
    insisting = [gateway.query(rows(1, i), budget_s=16.0, **insists) for i in range(8)]
    answers = await asyncio.gather(*others, *insisting)
    chosen = [result for result, _ in answers[100:] if isinstance(result, Result)]
    assert chosen and {result.variant for result in chosen} == {"heavy"}
