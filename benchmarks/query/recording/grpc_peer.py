"""The load generator's gRPC connections. What they take is theirs: only servers' figures are told."""

from __future__ import annotations

import asyncio

import grpc.aio
from tritonclient.grpc import service_pb2

from .book import Ended, Query
from .records import BROKEN, GRPC

METHOD = "/inference.GRPCInferenceService/ModelInfer"


class GrpcPeer:
    """One channel with a connection of its own."""

    def __init__(self, ended: Ended, host: str, port: int, key: str):
        self._ended = ended
        # Channels of one process share their connections unless they are told not to.
        self._channel = grpc.aio.insecure_channel(f"{host}:{port}", [("grpc.use_local_subchannel_pool", 1)])
        self._infer = self._channel.unary_unary(METHOD)
        self._metadata = (("authorization", f"Bearer {key}"),)
        self._asking: asyncio.Task | None = None
        self._closing: asyncio.Task | None = None

    def send(self, query: Query, request: bytes) -> None:
        self._asking = asyncio.create_task(self._ask(query, request))

    async def _ask(self, query: Query, request: bytes) -> None:
        try:
            answer = await self._infer(request, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            query.status = error.code().value[0]
            if query.status != GRPC.refused:
                query.note = f"{error.code().name} {error.details()}"
            query.retry = any(name == "grpc-retry-pushback-ms" for name, _ in error.trailing_metadata() or ())
            if error.code() is grpc.StatusCode.UNAVAILABLE and not query.retry:
                # The server says when to try again; the library, of a connection that failed, does not.
                query.status = BROKEN
        else:
            _read(query, answer)
        self._ended(self, query, True)

    def abandon(self) -> None:
        self._asking.cancel()
        self._closing = asyncio.create_task(self._channel.close())

    async def close(self) -> None:
        await self._channel.close()


def _read(query: Query, answer: bytes) -> None:
    message = service_pb2.ModelInferResponse.FromString(answer)
    told = message.parameters
    query.status = 0
    query.right = message.raw_output_contents[0] if message.raw_output_contents else b""
    query.queue_ms = told["queue_ms"].double_param
    query.batch = told["batch_size"].int64_param
    query.variant = told["variant"].string_param.encode()
