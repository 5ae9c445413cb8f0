"""Answers of a batch whose outputs cannot be encoded."""

from __future__ import annotations

import msgspec
import numpy as np

from workers.executor import answers, batch
from workers.executor.request_shapes import CheckedShapes
from workers.protocol.frames import ReceivedBatch, RequestShape, TensorHeader

from .harness import WIDE, application

RUN_S = 0.25


class Complex:
    """A model whose output has no V2 datatype."""

    alone = False

    def __init__(self) -> None:
        self.runs = 0

    def run(self, inputs, max_rows):
        self.runs += 1
        return {"y": inputs["x"].astype(np.complex64)}, RUN_S


def test_outputs_that_cannot_be_encoded_fail_after_one_run():
    x = np.ones((3, 4), np.float32)
    shape = RequestShape(1, (TensorHeader("x", "FP32", (1, 4), x.nbytes // 3),), ())
    message = ReceivedBatch(
        1, "app", 1, 16, msgspec.Raw(msgspec.msgpack.encode((shape,))), tuple((id, 0, 1.0) for id in (7, 8, 9))
    )
    spec = application(signature=WIDE)
    made, wrong = batch.admit(message, memoryview(x.tobytes()), CheckedShapes(spec), None, 0.0)
    assert not wrong
    model = Complex()
    found, failed, seconds = answers.of_batch(model, made)
    assert (found, model.runs, seconds) == ([], 1, RUN_S)
    assert failed == [(place, "y: arrays of complex64 have no V2 datatype") for place in range(3)]
