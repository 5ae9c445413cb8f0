"""Batches that are over in a moment run without a thread between.

Only the clock shows the difference.
"""

from __future__ import annotations

import time

import numpy as np
import onnxruntime
from prometheus_client.parser import text_string_to_metric_families

from workers.protocol.frames import Withdraw

from .harness import Executor, application, resident, rows, variant

#: what the device believes of a batch; short enough to run in the event loop's own thread
MOMENT_S = 0.00002


async def test_granted_queries_get_their_own_answers_and_each_is_counted(tiny_models, tmp_path):
    path, app = tiny_models["quick"], application()
    made = variant(1, path)
    sent = {id: rows(1 + id % 3, seed=id) for id in range(1, 61)}
    async with Executor(tmp_path) as executor:
        gateway = await executor.applied(1, [resident(made, MOMENT_S, 8)], [app], [path])
        begun = time.monotonic()
        for first in range(1, 61, 4):
            gateway.grant({id: sent[id] for id in range(first, first + 4)}, max_rows=8, number=first)
        session = onnxruntime.InferenceSession(str(path))
        for id, x in sent.items():
            result, outputs = await gateway.answer(id)
            np.testing.assert_allclose(outputs["y"], session.run(None, x)[0], rtol=1e-4, atol=1e-5)
            assert 0 <= result.queue_s <= time.monotonic() - begun
        page = await executor.metrics()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    waited = families["nereus_executor_queue_seconds"].samples
    counts = [sample.value for sample in waited if sample.name.endswith("_bucket")]
    assert counts == sorted(counts)
    assert counts[-1] == 60
    assert {sample.labels["application"] for sample in waited} == {"app"}
    assert [sample.value for sample in waited if sample.name.endswith("_count")] == [60]


async def test_a_backlog_of_quick_batches_leaves_the_loop_to_others(tiny_models, tmp_path):
    """A backlog of quick batches leaves the loop to others.

    Frames are read between quick batches that follow each other: a cancelled query is not answered.
    """
    path, app = tiny_models["heavy"], application(slo_s=600.0)
    async with Executor(tmp_path, queue_rows="4096") as executor:
        # Milliseconds a row, whatever the profile says: the first batch tells, later ones go to the thread.
        made = resident(variant(1, path), MOMENT_S, 1)
        gateway = await executor.applied(1, [made], [app], [path])
        x = {"x": np.ones((1, 4), np.float32)}
        ids = [gateway.dispatch(x, budget_s=600.0) for _ in range(600)]
        await gateway.answer(ids[0])
        gateway.connection.send(Withdraw(ids[-1]))
        for id in ids[:-1]:
            await gateway.answer(id)
        after = gateway.dispatch(x, budget_s=600.0)
        await gateway.answer(after)
    assert ids[-1] not in gateway.answers
