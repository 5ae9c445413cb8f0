"""Connections of the load generator over gRPC."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc.aio
import numpy as np

from appliance.load.peers import End, Ended
from appliance.load.records import BROKEN, GRPC
from workers.v2 import inference_pb2 as pb

METHOD = "/inference.GRPCInferenceService/ModelInfer"
#: a lost server is looked for again this soon
RECONNECT_MS = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 300)]


def v2_grpc_request(application: str, x: np.ndarray, name: str = "x", id: str = "") -> bytes:
    message = pb.ModelInferRequest(model_name=application, id=id)
    message.inputs.add(name=name, datatype="FP32", shape=x.shape)
    message.raw_input_contents.append(x.tobytes())
    return message.SerializeToString()


class GrpcPeer:
    """A channel with a connection of its own; messages to be sent stay bytes."""

    def __init__(self, ended: Ended, address: str, key: str, authorities: str = ""):
        self.request, self.due, self.sent = 0, 0.0, 0.0
        self._ended = ended
        # Channels of one process share their connections unless an option forbids it.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0), *RECONNECT_MS]
        if authorities:
            trust = grpc.ssl_channel_credentials(Path(authorities).read_bytes())
            self._channel = grpc.aio.secure_channel(address, trust, options)
        else:
            self._channel = grpc.aio.insecure_channel(address, options)
        self._infer = self._channel.unary_unary(METHOD)
        self._metadata = (("authorization", f"Bearer {key}"),)
        self._asking: asyncio.Task | None = None
        self._closing: asyncio.Task | None = None

    def send(self, request: bytes) -> None:
        self._asking = asyncio.create_task(self._ask(request))

    async def _ask(self, request: bytes) -> None:
        try:
            end = _grpc_end(await self._infer(request, metadata=self._metadata))
        except grpc.aio.AioRpcError as error:
            status = error.code().value[0]
            retry = any(name == "grpc-retry-pushback-ms" for name, _ in error.trailing_metadata() or ())
            note = "" if status == GRPC.refused else f"{error.code().name} {error.details()}"
            # Servers say when to retry; the library, of a connection that failed, does not.
            broken = error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED) and not retry
            end = End(BROKEN if broken else status, retry=retry, note=note)
        self._ended(self, end, True)

    def abandon(self) -> None:
        self._asking.cancel()
        self._closing = asyncio.create_task(self._channel.close())

    async def close(self) -> None:
        await self._channel.close()


def _grpc_end(answer: bytes) -> End:
    message = pb.ModelInferResponse.FromString(answer)
    parameters = message.parameters
    output = message.raw_output_contents[0] if message.raw_output_contents else b""
    queue_ms, batch = parameters["queue_ms"].double_param, parameters["batch_size"].int64_param
    variant, accuracy = parameters["variant"].string_param, parameters["accuracy"].double_param
    device, model_ms = parameters["device"].string_param, parameters["model_ms"].double_param
    told = {"id": message.id, "device": device, "model_ms": model_ms}
    return End(GRPC.answered, output, variant, queue_ms, batch, accuracy, **told)
