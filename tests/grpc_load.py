"""A load over gRPC by real clients, each with one channel, and what became of every query."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter

import grpc
import grpc.aio
import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException

#: an address that was refused is tried again after a tenth of a second, by default after one and then ever longer
BACKOFF = [(f"grpc.{name}_reconnect_backoff_ms", 100) for name in ("initial", "min", "max")]
INFER = "/inference.GRPCInferenceService/ModelInfer"


def _inputs() -> list[triton.InferInput]:
    tensor = triton.InferInput("x", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.full((1, 4), 0.5, np.float32))
    return [tensor]


def _request(application: str) -> bytes:
    request = pb.ModelInferRequest(model_name=application, raw_input_contents=[bytes(16)])
    request.inputs.add(name="x", datatype="FP32", shape=[1, 4])
    return request.SerializeToString()


class GrpcLoad:
    """Each kind of client asks ``rate`` times a second within the block; ``sent`` counts by client.

    A channel uses the first of ``addresses`` that it reaches, or all in turn (``round_robin``). ``trust``: for TLS,
    authorities as PEM.
    """

    def __init__(self, addresses: list[str], key: str, application: str, rate: float = 10, trust: str = ""):
        self._target = "ipv4:" + ",".join(addresses)
        self._trust = grpc.ssl_channel_credentials(trust.encode()) if trust else None
        # A name that the certificates of all gateways have.
        self._options = [*BACKOFF, *([("grpc.default_authority", "localhost")] if trust else [])]
        self._headers, self._application, self._period_s = {"authorization": f"Bearer {key}"}, application, 1 / rate
        self._stop = threading.Event()
        self.sent = Counter(dict.fromkeys(("tritonclient.grpc", "tritonclient.grpc.aio", "grpc.aio", "round_robin"), 0))
        self.errors: list[str] = []
        self._threads = [
            threading.Thread(target=lambda: asyncio.run(self._asynchronous()), daemon=True),
            threading.Thread(target=self._synchronous, daemon=True),
        ]

    def __enter__(self) -> GrpcLoad:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(300)

    @property
    def _triton(self) -> dict:
        return {"channel_args": self._options, "creds": self._trust}

    def _channel(self, options: list) -> grpc.aio.Channel:
        if self._trust is None:
            return grpc.aio.insecure_channel(self._target, options=options)
        return grpc.aio.secure_channel(self._target, self._trust, options=options)

    def _failed(self, name: str, error: Exception) -> None:
        self.errors.append(f"{name} {time.strftime('%X')} {error}")

    async def _asynchronous(self) -> None:
        in_turn = [("grpc.lb_policy_name", "round_robin"), *self._options]
        metadata = tuple(self._headers.items())
        async with (
            triton_aio.InferenceServerClient(self._target, **self._triton) as client,
            self._channel(self._options) as first,
            self._channel(in_turn) as each,
        ):
            ask = {
                "tritonclient.grpc.aio": lambda: client.infer(self._application, _inputs(), headers=self._headers),
                "grpc.aio": lambda: first.unary_unary(INFER)(_request(self._application), metadata=metadata),
                "round_robin": lambda: each.unary_unary(INFER)(_request(self._application), metadata=metadata),
            }
            tasks = set()
            while not self._stop.is_set():
                tasks |= {asyncio.create_task(self._one(name, one)) for name, one in ask.items()}
                await asyncio.sleep(self._period_s)
            await asyncio.gather(*tasks)

    async def _one(self, name: str, ask) -> None:
        self.sent[name] += 1
        try:
            await ask()
        except (grpc.aio.AioRpcError, InferenceServerException) as error:
            self._failed(name, error)

    def _synchronous(self) -> None:
        with triton.InferenceServerClient(self._target, **self._triton) as client:
            while not self._stop.wait(self._period_s):
                self.sent["tritonclient.grpc"] += 1
                try:
                    client.infer(self._application, _inputs(), headers=self._headers)
                except InferenceServerException as error:
                    self._failed("tritonclient.grpc", error)
