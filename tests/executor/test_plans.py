"""Plans come into force on a real executor: made before broken, and no query fails for it."""

from __future__ import annotations

import asyncio

import pytest

from tests.executor.harness import Executor, application, resident, rows, variant
from workers.protocol.frames import ExecutorState, Moved, Refusal, Result, StateReport

MIB = 1024 * 1024


@pytest.fixture
async def executor(tmp_path):
    async with Executor(tmp_path) as running:
        yield running


def warm(state: ExecutorState) -> dict[str, bool]:
    """Names of warm variants, and whether the plan in force has them."""
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
            answers.append((await gateway.query(rows(1, seed)))[0])
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
    assert [answer for answer in answers if not isinstance(answer, Result)] == []
    assert len(answers) > 300
    assert {answer.variant for answer in answers} == {"v1", "v2"}


async def test_the_old_variant_stays_until_the_new_one_is_warm_and_gateways_have_moved(executor, tiny_models):
    quick, medium = tiny_models["quick"], tiny_models["medium"]
    first = await executor.applied(1, [resident(variant(1, quick))], [application()], [quick])
    second = await executor.peer()
    executor.apply(2, [resident(variant(2, medium))], [application()], [medium])
    await first.next(ExecutorState, lambda state: state.plan_version == 2)
    seen = [(state.plan_version, warm(state)) for state in first.of(ExecutorState)]
    assert (1, {"v1": True, "v2": False}) in seen
    assert seen[-1] == (2, {"v1": False, "v2": True})
    assert not [state for state in first.of(ExecutorState) if state.plan_version and not any(warm(state).values())]
    # Not the first one's answer alone: whoever routes by the old plan may still insist on the old variant.
    first.connection.send(Moved(2))
    result, _ = await second.query(rows(1), variant="v1")
    assert result.variant == "v1"
    second.connection.send(Moved(2))
    result, _ = await first.query(rows(1))
    assert result.variant == "v2"


async def test_a_stand_by_is_not_used_unless_a_query_insists(executor, tiny_models):
    quick, medium = tiny_models["quick"], tiny_models["medium"]
    gateway = await executor.applied(1, [resident(variant(1, medium, accuracy=95.0))], [application()], [medium])
    executor.apply(2, [resident(variant(2, quick, accuracy=80.0))], [application()], [quick])
    await gateway.next(ExecutorState, lambda state: state.plan_version == 2)
    gateway.connection.send(Moved(2))
    answers = await asyncio.gather(
        gateway.query(rows(1)), gateway.query(rows(1), min_accuracy=90.0), gateway.query(rows(1), variant="v1")
    )
    assert [result.variant for result, _ in answers] == ["v2", "v1", "v1"]


async def test_an_application_that_left_the_plan_is_served_while_warm(executor, tiny_models):
    path = tiny_models["quick"]
    gateway = await executor.applied(1, [resident(variant(1, path))], [application()], [path])
    executor.apply(2, [], [], [])
    await gateway.next(ExecutorState, lambda state: state.plan_version == 2)
    assert isinstance((await gateway.query(rows(1)))[0], Result)


async def test_residents_of_one_application_share_its_rows_by_planned_rate(executor, tiny_models):
    path = tiny_models["quick"]
    residents = [
        resident(variant(1, path, accuracy=90.0), 0.02, max_batch=1, rate=30.0),
        resident(variant(2, path, accuracy=80.0), 0.02, max_batch=1, rate=10.0),
    ]
    gateway = await executor.applied(1, residents, [application()], [path])
    answers = await asyncio.gather(*(gateway.query(rows(1)) for _ in range(40)))
    used = [result.variant for result, _ in answers]
    assert (used.count("v1"), used.count("v2")) == (30, 10)


async def test_a_queued_query_keeps_its_accuracy_across_a_plan_change(executor, tiny_models):
    quick, medium = tiny_models["quick"], tiny_models["medium"]
    # Nothing runs before two of a kind are there, however long the new plan takes to come into force.
    spec = application(policy="fixed", batch=2)
    gateway = await executor.applied(1, [resident(variant(1, medium, accuracy=95.0))], [spec], [medium])
    insists = [gateway.submit(rows(1), budget_s=600.0, min_accuracy=90.0)]
    takes_any = [gateway.submit(rows(1), budget_s=600.0)]
    await gateway.next(ExecutorState, lambda state: state.queued == {"app": 2})
    executor.apply(2, [resident(variant(2, quick, accuracy=80.0))], [spec], [quick])
    await gateway.next(ExecutorState, lambda state: state.plan_version == 2)
    insists.append(gateway.submit(rows(1), budget_s=600.0, min_accuracy=90.0))
    takes_any.append(gateway.submit(rows(1), budget_s=600.0))
    assert [(await gateway.answer(id))[0].variant for id in insists] == ["v1", "v1"]
    assert [(await gateway.answer(id))[0].variant for id in takes_any] == ["v2", "v2"]


async def test_where_memory_is_short_the_old_variant_goes_first(tmp_path, tiny_models):
    quick, medium = tiny_models["quick"], tiny_models["medium"]
    async with Executor(tmp_path, memory_bytes=100 * MIB) as executor:
        old = resident(variant(1, quick), memory_bytes=60 * MIB)
        spec = application(policy="proteus", late="serve")
        gateway = await executor.applied(1, [old], [spec], [quick])
        queued = gateway.submit(rows(1), budget_s=5.0)
        await gateway.next(ExecutorState, lambda state: state.queued)
        executor.apply(2, [resident(variant(2, medium), memory_bytes=60 * MIB)], [spec], [medium])
        await gateway.next(ExecutorState, lambda state: state.plan_version == 2)
        assert {} in [warm(state) for state in gateway.of(ExecutorState) if state.plan_version == 1]
        assert not [s for s in gateway.of(ExecutorState) if {"v1", "v2"} <= set(warm(s))]
        assert (await gateway.answer(queued))[0].variant == "v1"
        assert (await gateway.query(rows(1), budget_s=0.5))[0].variant == "v2"


async def test_stand_bys_are_bounded_in_number(executor, tiny_models):
    path = tiny_models["quick"]
    gateway = await executor.applied(1, [resident(variant(1, path))], [application()], [path])
    for version in range(2, 13):
        executor.apply(version, [resident(variant(version, path))], [application()], [path])
        await gateway.next(ExecutorState, lambda state, version=version: state.plan_version == version)
        gateway.connection.send(Moved(version))
    names = await gateway.until(
        lambda: (
            (now := warm(gateway.state()))
            and gateway.state().plan_version == 12
            and "v2" not in now
            and len(now) == 9
            and now
        )
    )
    assert names == {**{f"v{i}": False for i in range(4, 12)}, "v12": True}


async def test_what_cannot_be_loaded_is_named_and_the_rest_of_the_plan_goes_on(executor, tiny_models, tmp_path):
    quick = tiny_models["quick"]
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"not a model")
    absent = variant(3, tmp_path / "absent.onnx", name="absent")
    other = application("other")
    residents = [
        resident(variant(1, broken, name="broken")),
        resident(absent),
        resident(variant(4, quick, "nobody", name="stray")),
        resident(variant(2, quick, "other")),
    ]
    gateway = await executor.applied(1, residents, [application(), other], [quick, broken])
    state = gateway.state()
    assert warm(state) == {"v2": True}
    assert state.errors.keys() == {"broken", "absent", "stray"}
    assert "no file" in state.errors["absent"] and "'nobody'" in state.errors["stray"]
    report = await executor.node.next(StateReport, lambda m: m.state.plan_version == 1)
    assert report.state.warm == (2,) and "broken: " in report.state.detail
    assert isinstance((await gateway.query(rows(1), application="other"))[0], Result)
    refusal = (await gateway.query(rows(1)))[0]
    assert isinstance(refusal, Refusal) and refusal.code == "not_resident"


async def test_a_model_with_another_signature_is_not_taken(executor, tiny_models, tmp_path):
    from tests import tiny

    path = tiny.classifier(tmp_path / "wide.onnx", features=5)
    wrong = application(signature=type(application().signature)((), application().signature.outputs))
    gateway = await executor.applied(1, [resident(variant(1, path))], [wrong], [path])
    assert gateway.state().errors == {"v1": "input x: the application's signature does not have it"}


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


async def test_wrong_batching_options_are_named_and_the_application_is_served(executor, tiny_models):
    path = tiny_models["quick"]
    spec = application(policy="no-such-policy", late="serve")
    gateway = await executor.applied(1, [resident(variant(1, path))], [spec], [path])
    assert isinstance((await gateway.query(rows(1), budget_s=0.5))[0], Result)
    executor.apply(2, [resident(variant(1, path))], [spec], [path])
    state = await gateway.next(ExecutorState, lambda state: state.plan_version == 2)
    assert "no-such-policy" in state.errors["app"]
