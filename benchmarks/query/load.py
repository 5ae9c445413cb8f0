"""Driving the load generator, and what servers spent while it ran."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from .generator import Load, Outcome
from .models import Model

#: inputs that are sent in turn, so that an answer that belongs to another query is noticed
INPUTS = 4


class LoadError(RuntimeError):
    """Queries failed, were lost or were answered wrongly: there is no figure to tell."""


@dataclass(frozen=True)
class Spent:
    """An outcome, and by server process the microseconds of CPU time a query."""

    outcome: Outcome
    cpu_us: dict[str, float]

    @property
    def queries_s(self) -> float:
        return self.outcome.answered / self.outcome.seconds

    @property
    def total_us(self) -> float:
        return sum(self.cpu_us.values())

    @property
    def batch(self) -> float:
        """Mean rows a batch."""
        return self.outcome.answered / self.outcome.batches if self.outcome.batches else float("nan")


class Generator:
    """The generator's process; a context manager."""

    def __enter__(self) -> Generator:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.query.generator"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_error) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def run(self, load: Load, cpu_s: Callable[[], dict[str, float]], refusals: bool = False) -> Spent:
        """Carry out a load.

        Args:
            cpu_s: seconds of CPU time that each server process has taken so far.
            refusals: whether refused queries (503) are part of the outcome, rather than an error.

        Raises:
            LoadError: a query failed, was answered wrongly, or was not answered.
        """
        self._tell(msgspec.json.encode(load).decode())
        self._hear("ready")
        before = cpu_s()
        self._tell("go")
        self._hear("measured")
        after = cpu_s()
        self._tell("go")
        outcome = msgspec.json.decode(self._hear(), type=Outcome)
        missing = outcome.sent - outcome.answered - (outcome.refused if refusals else 0)
        if missing or (outcome.errors and not (refusals and outcome.refused)) or not outcome.answered:
            raise LoadError(f"{missing} of {outcome.sent} queries were not answered: {outcome.errors}")
        return Spent(outcome, {name: (after[name] - before[name]) / outcome.answered * 1e6 for name in after})

    def _tell(self, line: str) -> None:
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _hear(self, word: str | None = None) -> str:
        line = self._process.stdout.readline().strip()
        if not line or (word is not None and line != word):
            raise LoadError(f"the load generator said {line[:500]!r}")
        return line


def v2_requests(model: Model, key: str, rows: int = 1) -> tuple[list[bytes], list[bytes]]:
    """Requests of V2 HTTP with binary tensors, and what their answers must end in."""
    return requests(model, v2_request(model.name, key), rows)


def v2_request(application: str, key: str) -> Callable[[np.ndarray], bytes]:
    """Makes a whole HTTP request of an input ``x``."""

    def request(x: np.ndarray) -> bytes:
        parameters = {"binary_data_size": x.nbytes}
        tensor = {"name": "x", "datatype": "FP32", "shape": list(x.shape), "parameters": parameters}
        header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
        return post(
            f"/v2/models/{application}/infer",
            header + x.tobytes(),
            Authorization=f"Bearer {key}",
            Inference_Header_Content_Length=str(len(header)),
        )

    return request


def v2_grpc_requests(model: Model, rows: int = 1) -> tuple[list[bytes], list[bytes]]:
    """The same as ``ModelInferRequest`` messages of V2 gRPC with raw contents."""
    return requests(model, v2_grpc_request(model.name), rows)


def v2_grpc_request(application: str) -> Callable[[np.ndarray], bytes]:
    """Makes a serialised ``ModelInferRequest`` of an input ``x``."""
    from tritonclient.grpc import service_pb2

    def request(x: np.ndarray) -> bytes:
        message = service_pb2.ModelInferRequest(model_name=application)
        message.inputs.add(name="x", datatype="FP32", shape=x.shape)
        message.raw_input_contents.append(x.tobytes())
        return message.SerializeToString()

    return request


def requests(model: Model, request: Callable[[np.ndarray], bytes], rows: int = 1) -> tuple[list[bytes], list[bytes]]:
    """Requests made by ``request`` from inputs, and the model's own answers."""
    session = model.session()
    inputs = [model.rows(rows, seed) for seed in range(INPUTS)]
    return [request(x) for x in inputs], [session.run(["y"], {"x": x})[0].tobytes() for x in inputs]


def post(path: str, body: bytes, **headers: Any) -> bytes:
    """A whole HTTP request."""
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
