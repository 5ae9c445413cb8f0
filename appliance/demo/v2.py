"""Queries in the Open Inference Protocol's binary form, encoded beforehand, and what their answers say."""

from __future__ import annotations

import json
from dataclasses import dataclass

import msgspec
import numpy as np

from .manifest import DemoApplication
from .wire import HttpPool


class AnswerParameters(msgspec.Struct):
    """What the appliance says of how a query was answered; ``accuracy`` in percent."""

    variant: str = ""
    accuracy: float | None = None
    device: str = ""
    queue_ms: float = 0.0
    batch_size: int = 0


class _OutputParameters(msgspec.Struct):
    binary_data_size: int | None = None


class _Output(msgspec.Struct):
    shape: list[int]
    data: list[float] | None = None
    parameters: _OutputParameters = msgspec.field(default_factory=_OutputParameters)


class _Answer(msgspec.Struct):
    outputs: list[_Output]
    parameters: AnswerParameters = msgspec.field(default_factory=AnswerParameters)


_decode = msgspec.json.Decoder(_Answer).decode


@dataclass(frozen=True)
class Answer:
    """The class with the highest score, and the response's parameters."""

    label: int
    parameters: AnswerParameters


def queries(pool: HttpPool, application: DemoApplication, key: str) -> list[bytes]:
    """One request of one row for each held-out sample, as bytes for the wire."""
    samples = application.samples()
    spec = application.signature["inputs"][0]
    rows = np.asarray(samples[spec["name"]], dtype="<f4")
    requests = []
    for row in rows:
        tensor = row.tobytes()
        header = json.dumps(
            {
                "inputs": [
                    {
                        "name": spec["name"],
                        "datatype": spec["datatype"],
                        "shape": [1, *row.shape],
                        "parameters": {"binary_data_size": len(tensor)},
                    }
                ],
                "parameters": {"binary_data_output": True},
            },
            separators=(",", ":"),
        ).encode()
        headers = {
            "Authorization": f"Bearer {key}",
            "Content-Type": "application/octet-stream",
            "Inference-Header-Content-Length": str(len(header)),
        }
        path = f"/v2/models/{application.name}/infer"
        requests.append(pool.request_bytes("POST", path, headers, header + tensor))
    return requests


def answer(headers: dict[bytes, bytes], body: bytes) -> Answer:
    """Read a response with status 200.

    Raises:
        ValueError: it is not a V2 response with one output of scores (msgspec's errors included).
    """
    length = int(headers.get(b"inference-header-content-length", len(body)))
    parsed = _decode(memoryview(body)[:length])
    if len(parsed.outputs) != 1:
        raise ValueError(f"outputs: must be one, not {len(parsed.outputs)}")
    output = parsed.outputs[0]
    size = output.parameters.binary_data_size
    if size is not None:
        if size != len(body) - length:
            raise ValueError(f"binary_data_size: {size}, but {len(body) - length} bytes follow the header")
        scores = np.frombuffer(body, "<f4", offset=length)
    else:
        scores = np.asarray(output.data, np.float32)
    if scores.size == 0 or not np.isfinite(scores).all():
        raise ValueError("scores: must be finite numbers")
    return Answer(int(scores.argmax()), parsed.parameters)
