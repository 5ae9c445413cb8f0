"""Requests of the load generator, made beforehand, and their right answers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from workers.v2 import inference_pb2

from .models import Model

#: inputs that are sent in turn, so that an answer that belongs to another query is noticed
INPUTS = 4


def requests(model: Model, make: Callable[[np.ndarray], bytes]) -> tuple[list[bytes], list[bytes]]:
    """Requests of one row that ``make`` spells, and the model's own answers."""
    session = model.session()
    inputs = [model.rows(1, seed) for seed in range(INPUTS)]
    return [make(x) for x in inputs], [session.run(["y"], {"x": x})[0].tobytes() for x in inputs]


def v2_grpc_request(application: str) -> Callable[[np.ndarray], bytes]:
    """Makes a serialised ``ModelInferRequest`` with raw contents."""

    def make(x: np.ndarray) -> bytes:
        message = inference_pb2.ModelInferRequest(model_name=application)
        message.inputs.add(name="x", datatype="FP32", shape=x.shape)
        message.raw_input_contents.append(x.tobytes())
        return message.SerializeToString()

    return make
