"""Batches that a gateway put together, on a real executor."""

from __future__ import annotations

import msgspec
import numpy as np
import onnxruntime as ort
import pytest

from tests.executor.harness import Executor, Peer, application, encode, resident, rows, variant
from workers.protocol.frames import ExecutorState, Refusal, RequestShape, Results, RunBatch, Withdraw

LATE = -0.001


@pytest.fixture
async def executor(tmp_path):
    # What keeps the device busy may wait before it runs, and must leave room for more.
    async with Executor(tmp_path, queue_rows="100000") as running:
        yield running


@pytest.fixture
async def gateway(executor, tiny_models):
    """With the heavy variant (1) planned, and the quick one (2) on standby."""
    heavy = resident(variant(1, tiny_models["heavy"], accuracy=99.0, name="heavy"), 0.005, max_batch=4)
    quick = resident(variant(2, tiny_models["quick"], accuracy=80.0, name="quick"), 0.001)
    peer = await executor.peer()
    paths = [tiny_models["heavy"], tiny_models["quick"]]
    executor.apply(1, [heavy], [application()], paths, standby=[quick])
    await peer.next(ExecutorState, lambda state: {warm.name for warm in state.warm} == {"heavy", "quick"})
    return peer


def grant(
    peer: Peer, ids: range, variant=2, application="app", budget_s=600.0, max_rows=16, each=1, **budgets: float
) -> dict[int, np.ndarray]:
    """Send a batch, and return its inputs by id; ``_7=0.1`` is the budget of query 7."""
    inputs = {id: rows(each, seed=id) for id in ids}
    due = {id: budgets.get(f"_{id}", budget_s) for id in ids}
    peer.grant(inputs, variant, application, max_rows, budgets=due)
    return {id: arrays["x"] for id, arrays in inputs.items()}


async def answers(peer: Peer, ids) -> list:
    return [(await peer.answer(id))[0] for id in ids]


def occupy(peer: Peer, id: int = 900, count: int = 600) -> None:
    grant(peer, range(id, id + 1), variant=1, each=count, max_rows=4)


async def test_a_batch_runs_as_one_on_the_variant_that_it_names(gateway, tiny_models):
    for variant_id, name in ((2, "quick"), (1, "heavy")):
        ids = range(variant_id * 100, variant_id * 100 + 8)
        inputs = grant(gateway, ids, variant=variant_id)
        session = ort.InferenceSession(str(tiny_models[name]), providers=["CPUExecutionProvider"])
        for id in ids:
            result, outputs = await gateway.answer(id)
            # The plan's batch size is no limit here: the gateway knows the profile too.
            assert (result.variant, result.batch_rows) == (name, 8)
            assert result.occupied_s >= result.run_s > 0
            expected = session.run(None, {"x": inputs[id]})[0]
            np.testing.assert_allclose(outputs["y"], expected, rtol=1e-4, atol=1e-5)


async def test_batches_run_in_the_order_in_which_they_came(gateway):
    occupy(gateway)
    for i in range(5):
        grant(gateway, range(10 * i, 10 * i + 4), variant=1 + i % 2)
    ids = [10 * i + j for i in range(5) for j in range(4)]
    found = await answers(gateway, ids)
    assert [result.variant for result in found] == [name for i in range(5) for name in [("heavy", "quick")[i % 2]] * 4]
    assert all(result.batch_rows == 4 for result in found)
    assert [id for message in gateway.of(Results) for id in message.ids][1:] == ids


async def test_what_is_late_when_its_turn_comes_is_refused_and_the_others_run(gateway):
    occupy(gateway)
    grant(gateway, range(1, 6), _2=0.02, _4=LATE)
    found = await answers(gateway, range(1, 6))
    assert [type(answer) for answer in found] == [Results, Refusal, Results, Refusal, Results]
    assert {(answer.code, answer.message) for answer in found if isinstance(answer, Refusal)} == {
        ("late", "cannot be answered in time here")
    }
    assert {answer.batch_rows for answer in found if isinstance(answer, Results)} == {3}


async def test_one_cancelled_in_a_batch_that_waits_leaves_the_others_alone(gateway):
    occupy(gateway)
    grant(gateway, range(1, 5))
    gateway.connection.send(Withdraw(3))
    found = await answers(gateway, (1, 2, 4))
    assert {answer.batch_rows for answer in found} == {3}
    assert 3 not in gateway.answers
    # A batch of which nothing is left holds nobody up.
    occupy(gateway, 901)
    grant(gateway, range(11, 13))
    for id in (11, 12):
        gateway.connection.send(Withdraw(id))
    grant(gateway, range(21, 23))
    found = await answers(gateway, range(21, 23))
    assert not [answer for answer in found if isinstance(answer, Refusal)], found
    assert {answer.batch_rows for answer in found} == {2}
    assert {11, 12}.isdisjoint(gateway.answers)


async def test_a_variant_that_is_not_warm_is_declined_query_by_query(gateway):
    for given in ({"variant": 77}, {"application": "other"}):
        ids = range(10, 13) if "variant" in given else range(20, 23)
        grant(gateway, ids, **given)
        for answer in await answers(gateway, ids):
            assert (answer.code, answer.retryable) == ("not_resident", True)
    assert "77" in gateway.answers[10][0].message
    grant(gateway, range(1, 3))
    assert {answer.variant for answer in await answers(gateway, range(1, 3))} == {"quick"}


async def test_malformed_queries_are_refused_by_themselves_and_the_others_run(gateway):
    header, data = encode("x", rows(1)["x"])
    good = RequestShape(1, (header,))
    changes = [{"nbytes": -16}, {"name": "z"}, {"datatype": "FP64"}, {"datatype": "INT32"}]
    changes += [{"shape": shape} for shape in ((1, 3), (4,), ())]
    misfits = [
        RequestShape(0, (header,)),
        RequestShape(2, (header,)),
        RequestShape(1, ()),
        RequestShape(1, (header, header)),
        RequestShape(1, (header,), ("q",)),
        *(RequestShape(1, (msgspec.structs.replace(header, **change),)) for change in changes),
    ]
    # Shape, budget, and how many rows of the body are its.
    wrong = [
        *(("does not fit the signature of app: ", (one, 1.0, _rows_of(one))) for one in misfits),
        ("budget_s: must be from -3600 to 86400, not 1e+300", (good, 1e300, 1)),
        ("budget_s: must be from -3600 to 86400, not nan", (good, float("nan"), 1)),
        (
            "x: FP32 [1, 4] needs 16 bytes, not 32",
            (RequestShape(1, (msgspec.structs.replace(header, nbytes=32),)), 1.0, 2),
        ),
    ]
    for i, (message, (shape, budget_s, parts)) in enumerate(wrong):
        bad, fine = 100 + 3 * i, (101 + 3 * i, 102 + 3 * i)
        queries = ((fine[0], 1, 60.0), (bad, 0, budget_s), (fine[1], 1, 60.0))
        gateway.connection.send(RunBatch(1, "app", 2, 8, (shape, good), queries), [data] * (2 + parts))
        refusal, *results = await answers(gateway, (bad, *fine))
        assert (refusal.code, refusal.retryable) == ("invalid", False) and refusal.message.startswith(message)
        assert {result.batch_rows for result in results} == {2}


def _rows_of(shape: RequestShape) -> int:
    """How many rows of the body a shape of the harness takes."""
    return sum(max(0, header.nbytes) for header in shape.inputs) // 16


@pytest.mark.parametrize("place", [1, -1, 2**40])
async def test_a_query_of_no_form_is_refused(gateway, place):
    header, data = encode("x", rows(1)["x"])
    gateway.connection.send(
        RunBatch(1, "app", 2, 8, (RequestShape(1, (header,)),), ((1, 0, 60.0), (2, place, 60.0))), [data]
    )
    result, refusal = await answers(gateway, (1, 2))
    # It has no part in the body, and without it the rest adds up.
    assert isinstance(result, Results) and result.batch_rows == 1
    assert (refusal.code, refusal.message) == ("invalid", f"shape: must be from 0 to 0, not {place}")


async def test_a_body_that_does_not_add_up_is_nobodys(gateway):
    header, data = encode("x", rows(1)["x"])
    shapes, queries = (RequestShape(1, (header,)),), ((1, 0, 60.0), (2, 0, 60.0))
    for shift, body in enumerate((bytes(data) * 2 + b"123", bytes(data) * 2 + bytes(data), bytes(data), b"")):
        ids = [10 * shift + id for id, _, _ in queries]
        shifted = tuple((id, 0, 60.0) for id in ids)
        gateway.connection.send(RunBatch(1, "app", 2, 8, shapes, shifted), [body])
        for refusal in await answers(gateway, ids):
            assert (refusal.code, refusal.retryable) == ("invalid", False)
            assert refusal.message == f"inputs: body has {len(body)} bytes, its tensors 32"
    # No query at all asks for nothing, and a limit that makes no sense is not taken at its word.
    gateway.connection.send(RunBatch(1, "app", 2, 8, (), ()))
    gateway.connection.send(RunBatch(1, "app", 2, 8, shapes, ()))
    gateway.connection.send(RunBatch(1, "app", 2, 8, (), ((200, 0, 1.0),)))
    (refusal,) = await answers(gateway, (200,))
    assert refusal.code == "invalid"
    grant(gateway, range(300, 302), max_rows=-5)
    assert {answer.batch_rows for answer in await answers(gateway, range(300, 302))} == {2}


async def test_a_gateway_that_goes_takes_its_batches_along(gateway, executor):
    other = await executor.peer(name="other", leases=True)
    occupy(gateway, count=4000)
    grant(gateway, range(1, 9))
    await other.next(ExecutorState, lambda state: state.queued.get("app") == 8)
    gateway.connection.close()
    await other.next(ExecutorState, lambda state: not state.queued)
    await other.lease()
    grant(other, range(1, 4))
    assert {answer.batch_rows for answer in await answers(other, range(1, 4))} == {3}
