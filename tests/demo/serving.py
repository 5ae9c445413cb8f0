"""A real gRPC server that speaks as much V2 as the demo's load needs.

It misbehaves on request.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import grpc
import grpc.aio
import numpy as np
from grpc import StatusCode as Code
from tritonclient.grpc import service_pb2, service_pb2_grpc

from appliance.demo.manifest import DemoApplication, DemoVariant

CLASSES = 3


def application(folder: Path, name: str = "shapes", slo_ms: float = 300.0) -> DemoApplication:
    """Make an application whose rows say their class: the largest value's place.

    It has twenty real rows on disk.
    """
    rows = np.random.default_rng(0).random((20, CLASSES), np.float32)
    path = folder / f"{name}.npz"
    np.savez(path, x=rows, labels=rows.argmax(1))
    return DemoApplication(
        name=name,
        description="",
        slo_ms=slo_ms,
        signature={
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, CLASSES]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, CLASSES]}],
        },
        validation_set=path,
        metric="top1",
        variants=(DemoVariant("small", path, 80.0), DemoVariant("large", path, 90.0)),
    )


class V2Server(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers with the row itself as its scores.

    ``decide(n)`` says what the n-th query (from 0) gets: a status, with a delay in seconds.
    """

    def __init__(self, decide: Callable[[int], tuple[Code, float]] = lambda n: (Code.OK, 0.0), port: int = 0):
        self._decide = decide
        self.port = port
        self.queries = 0
        self.answered: Counter = Counter()
        self.ready = True
        self.polls = 0
        self.keys: set[str] = set()
        self.peers: set[str] = set()

    async def __aenter__(self) -> V2Server:
        # Two servers must not share a port unnoticed.
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()
        return self

    async def __aexit__(self, *_exc) -> None:
        await self._server.stop(None)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def ServerReady(self, _request, _context):
        self.polls += 1
        return service_pb2.ServerReadyResponse(ready=self.ready)

    async def ModelInfer(self, request, context):
        self.peers.add(context.peer())
        self.keys.add(dict(context.invocation_metadata())["authorization"])
        status, delay = self._decide(self.queries)
        self.queries += 1
        await asyncio.sleep(delay)
        self.answered[status] += 1
        if status is not Code.OK:
            await context.abort(status, "as told")
        (tensor,), (row,) = request.inputs, request.raw_input_contents
        assert len(row) == 4 * math.prod(tensor.shape)
        answer = service_pb2.ModelInferResponse(model_name="shapes")
        answer.outputs.add(name="y", datatype="FP32", shape=tensor.shape)
        answer.raw_output_contents.append(row)
        answer.parameters["variant"].string_param = "large"
        answer.parameters["accuracy"].double_param = 90.0
        return answer
