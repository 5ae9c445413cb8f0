"""Requests of the load generator, made beforehand, and their right answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2

from .models import Model

#: inputs that are sent in turn, so that an answer that belongs to another query is noticed
INPUTS = 4


def requests(model: Model, make: Callable[[np.ndarray], bytes]) -> tuple[list[bytes], list[bytes]]:
    """Requests of one row that ``make`` spells, and the model's own answers."""
    session = model.session()
    inputs = [model.rows(1, seed) for seed in range(INPUTS)]
    return [make(x) for x in inputs], [session.run(["y"], {"x": x})[0].tobytes() for x in inputs]


def v2_request(application: str, key: str, version: str = "", name: str = "x") -> Callable[[np.ndarray], bytes]:
    """Return a function that makes a whole V2 HTTP request with binary tensors.

    Args:
        version: a variant that must answer.
    """
    path = f"/v2/models/{application}" + (f"/versions/{version}" if version else "") + "/infer"

    def make(x: np.ndarray) -> bytes:
        tensor = {
            "name": name,
            "datatype": "FP32",
            "shape": list(x.shape),
            "parameters": {"binary_data_size": x.nbytes},
        }
        header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
        fields = {"Authorization": f"Bearer {key}", "Inference-Header-Content-Length": len(header)}
        return post(path, header + x.tobytes(), fields)

    return make


def v2_grpc_request(application: str) -> Callable[[np.ndarray], bytes]:
    """Makes a serialised ``ModelInferRequest`` with raw contents."""

    def make(x: np.ndarray) -> bytes:
        message = service_pb2.ModelInferRequest(model_name=application)
        message.inputs.add(name="x", datatype="FP32", shape=x.shape)
        message.raw_input_contents.append(x.tobytes())
        return message.SerializeToString()

    return make


def post(path: str, body: bytes, fields: dict[str, Any]) -> bytes:
    """A whole HTTP request."""
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
