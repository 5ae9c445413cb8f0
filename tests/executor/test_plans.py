"""Plans come into force on a real executor."""

from __future__ import annotations

import asyncio
import time

from tests.executor.harness import XY, Executor, application, resident, rows, turning, variant
from workers.executor.residency import BREAK_GRACE_S
from workers.protocol.frames import ExecutorState, Moved, Refusal, Results, StateReport

MIB = 1024 * 1024


def warm(state: ExecutorState) -> dict[str, bool]:
    return {variant.name: variant.planned for variant in state.warm}


async def test_swapping_back_and_forth_under_load_fails_no_query(executor, tiny_models):
    quick, medium = tiny_models["quick"], tiny_models["medium"]
    plans = [
        ([resident(variant(1, quick, accuracy=80.0), 0.001)], [application()], [quick]),
        ([resident(variant(2, medium, accuracy=95.0), 0.003)], [application()], [medium]),
    ]
    gateway = await executor.applied(1, *plans[0])
    stop = False

    async def client(seed: int) -> list:
        answers = []
        while not stop:
            (planned,) = [warm.id for warm in gateway.state().warm if warm.planned]
            answers.append((await gateway.query(rows(1, seed), variant=planned))[0])
        return answers

    clients = [asyncio.create_task(client(i)) for i in range(32)]
    for version in range(2, 12):
        executor.apply(version, *plans[(version - 1) % 2])
        await gateway.next(ExecutorState, lambda state, version=version: state.plan_version == version)
        gateway.connection.send(Moved(version))
        had = gateway.answered
        await gateway.until(lambda had=had: gateway.answered >= had + 32)
    stop = True
    answers = [answer for answers in await asyncio.gather(*clients) for answer in answers]
    assert [answer for answer in answers if not isinstance(answer, Results)] == []
    assert len(answers) > 300
    assert {answer.variant for answer in answers} == {"v1", "v2"}


async def test_cores_are_notified_that_a_variant_is_being_warmed_up_before_its_long_runs(executor, tiny_models):
    quick, medium = tiny_models["quick"], tiny_models["medium"]
    core = await executor.applied(1, [resident(variant(1, quick), 0.001)], [application()], [quick])
    before = len(core.of(ExecutorState))
    executor.apply(2, [resident(variant(2, medium), 0.05)], [application()], [medium])
    await core.next(ExecutorState, lambda state: state.plan_version == 2)
    states = core.of(ExecutorState)[before:]
    assert len([state for state in states if state.busy_s > 0]) >= 3, "two runs of one row, one of the largest batch"
    assert states[-1].busy_s == 0.0, "they may send again"


async def test_a_query_that_a_warm_up_would_make_late_is_handed_back_at_once(executor, tiny_models, tmp_path):
    quick, slow = tiny_models["quick"], turning(tmp_path / "slow.onnx", turns=10**12)
    serving = [application(), application("patient", late="serve")]
    mine = [resident(variant(1, quick), 0.001), resident(variant(2, quick, "patient"), 0.001)]
    core = await executor.applied(1, mine, serving, [quick])
    before = len(core.of(ExecutorState))
    third = resident(variant(3, slow), 100.0)
    executor.apply(2, [*mine, third], serving, [quick, slow])
    await core.until(lambda: any(state.busy_s > 0 for state in core.of(ExecutorState)[before:]))
    waits = core.dispatch(rows(1), variant=2, application="patient", budget_s=2.0)
    refusal, _ = await core.query(rows(1), variant=1, budget_s=2.0)
    assert isinstance(refusal, Refusal) and (refusal.code, refusal.retryable) == ("draining", True)
    assert "being warmed up" in refusal.message
    assert waits not in core.answers, "its application prefers a late answer"


async def test_the_old_variant_stays_until_the_new_one_is_warm_and_the_core_has_moved(executor, tiny_models):
    quick, medium = tiny_models["quick"], tiny_models["medium"]
    core = await executor.applied(1, [resident(variant(1, quick))], [application()], [quick])
    standing_by = await executor.peer(name="other", leases=True)
    executor.apply(2, [resident(variant(2, medium))], [application()], [medium], may_stay=())
    await core.next(ExecutorState, lambda state: state.plan_version == 2)
    seen = [(state.plan_version, warm(state)) for state in core.of(ExecutorState)]
    assert (1, {"v1": True, "v2": False}) in seen
    # The core knows of the new plan before anything of it is loaded.
    assert [state for state in core.of(ExecutorState) if state.newest_plan == 2 and warm(state) == {"v1": True}]
    assert seen[-1] == (2, {"v1": False, "v2": True})
    assert not [state for state in core.of(ExecutorState) if state.plan_version and not any(warm(state).values())]
    # The word of a core that does not have the device is not asked for, and not enough.
    standing_by.connection.send(Moved(2))
    await standing_by.asked(wanted=False)
    result, _ = await core.query(rows(1), variant=1)
    assert result.variant == "v1"
    core.connection.send(Moved(2))
    await core.next(ExecutorState, lambda state: warm(state) == {"v2": True})
    result, _ = await core.query(rows(1), variant=2)
    assert result.variant == "v2"


async def test_an_application_that_left_the_plan_is_served_while_warm(executor, tiny_models):
    path = tiny_models["quick"]
    gateway = await executor.applied(1, [resident(variant(1, path))], [application()], [path])
    executor.apply(2, [], [], [])
    await gateway.next(ExecutorState, lambda state: state.plan_version == 2)
    assert isinstance((await gateway.query(rows(1)))[0], Results)


async def test_where_memory_is_short_the_old_variant_goes_first(tmp_path, tiny_models):
    quick, medium = tiny_models["quick"], tiny_models["medium"]
    async with Executor(tmp_path, memory_bytes=100 * MIB, queue_rows="100000") as executor:
        # Run by the thread, whatever it takes: so the queue is reported while it is served.
        old = resident(variant(1, quick), 0.05, memory_bytes=60 * MIB)
        spec = application(late="serve")
        gateway = await executor.applied(1, [old], [spec], [quick])
        queued = [gateway.dispatch(rows(2000), max_rows=16) for _ in range(45)]
        await gateway.next(ExecutorState, lambda state: state.queued)
        began = time.monotonic()
        executor.apply(2, [resident(variant(2, medium), memory_bytes=60 * MIB)], [spec], [medium])
        await gateway.next(ExecutorState, lambda state: state.plan_version == 2)
        assert {} in [warm(state) for state in gateway.of(ExecutorState) if state.plan_version == 1]
        assert not [s for s in gateway.of(ExecutorState) if {"v1", "v2"} <= set(warm(s))]
        took_s = time.monotonic() - began
        answers = [(await gateway.answer(id))[0] for id in queued]
        served = [answer for answer in answers if isinstance(answer, Results)]
        assert {answer.variant for answer in served} == {"v1"}
        # On a busy machine the grace may end first; the rest is refused.
        assert len(served) == len(answers) or took_s >= BREAK_GRACE_S
        assert (await gateway.query(rows(1), variant=2))[0].variant == "v2"


async def test_standby_variants_are_bounded_in_number(executor, tiny_models):
    path = tiny_models["quick"]
    gateway = await executor.applied(1, [resident(variant(1, path))], [application()], [path])
    for version in range(2, 13):
        executor.apply(version, [resident(variant(version, path))], [application()], [path])
        await gateway.next(ExecutorState, lambda state, version=version: state.plan_version == version)
        gateway.connection.send(Moved(version))
    state = await gateway.next(
        ExecutorState, lambda state: state.plan_version == 12 and "v2" not in warm(state) and len(state.warm) == 9
    )
    assert warm(state) == {**{f"v{i}": False for i in range(4, 12)}, "v12": True}


async def test_what_cannot_be_loaded_is_named_and_the_rest_of_the_plan_goes_on(executor, tiny_models, tmp_path):
    quick = tiny_models["quick"]
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"not a model")
    absent = variant(3, tmp_path / "absent.onnx", name="absent")
    other = application("other")
    narrow = application("narrow", signature=type(XY)((), XY.outputs))
    residents = [
        resident(variant(1, broken, name="broken")),
        resident(absent),
        resident(variant(4, quick, "nobody", name="stray")),
        resident(variant(2, quick, "other")),
        resident(variant(5, quick, "narrow", name="misfit")),
    ]
    gateway = await executor.applied(1, residents, [application(), other, narrow], [quick, broken])
    state = gateway.state()
    assert warm(state) == {"v2": True}
    assert state.errors.keys() == {"broken", "absent", "stray", "misfit"}
    assert state.errors["misfit"] == "input x: the application's signature does not have it"
    assert "no file" in state.errors["absent"] and "'nobody'" in state.errors["stray"]
    report = await executor.node.next(StateReport, lambda m: m.state.plan_version == 1)
    assert report.state.warm == (2,) and "broken: " in report.state.detail
    assert isinstance((await gateway.query(rows(1), variant=2, application="other"))[0], Results)
    refusal = (await gateway.query(rows(1)))[0]
    assert isinstance(refusal, Refusal) and refusal.code == "not_resident"


async def test_a_newer_plan_supersedes_one_that_still_loads(executor, tiny_models):
    quick, medium, heavy = (tiny_models[name] for name in ("quick", "medium", "heavy"))
    gateway = await executor.peer()
    many = [resident(variant(10 + i, heavy)) for i in range(6)]
    executor.apply(1, many, [application()], [heavy])
    executor.apply(2, [resident(variant(1, quick)), resident(variant(2, medium))], [application()], [quick, medium])
    await gateway.next(ExecutorState, lambda state: state.plan_version == 2)
    assert 1 not in {state.plan_version for state in gateway.of(ExecutorState)}
    assert warm(gateway.state()).keys() >= {"v1", "v2"}
    assert len(gateway.state().warm) < 8
