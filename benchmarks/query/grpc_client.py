"""The load generator's gRPC connections. What they take is theirs: only servers' CPU time is told."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Protocol

import grpc.aio

_METHOD = "/inference.GRPCInferenceService/ModelInfer"


class Run(Protocol):
    """What a connection tells of its queries (see :class:`.generator.Run`)."""

    load: Any
    sent: int
    under_way: int
    refused: int

    def check(self, connection: Any, data: bytes, begin: int, latency_s: float) -> None:
        """An answer, which begins there."""

    def land(self, connection: Any) -> None:
        """A query is answered, and the connection free."""

    def failed(self, connection: Any, reason: str) -> None:
        """A query is not answered."""


class GrpcConnection:
    """One channel with at most one query under way; messages stay bytes."""

    def __init__(self, run: Run):
        # Channels of one process share their connections unless they are told not to.
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.aio.insecure_channel(f"{run.load.host}:{run.load.port}", options)
        self._infer = self._channel.unary_unary(_METHOD)
        self._metadata = (("authorization", f"Bearer {run.load.grpc_key}"),)
        self._run = run
        self._tasks: set[asyncio.Task] = set()
        self.due = 0.0
        self.expected = -1

    def send(self, number: int, due: float) -> None:
        run = self._run
        self.expected = number % len(run.load.requests)
        self.due = due
        run.sent += 1
        run.under_way += 1
        task = asyncio.create_task(self._ask(run.load.requests[self.expected]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, request: bytes) -> None:
        run = self._run
        try:
            answer = await self._infer(request, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            run.refused += error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            run.failed(self, f"{error.code()} {error.details()}")
            return
        run.check(self, answer, 0, time.perf_counter() - self.due)
        run.land(self)

    def close(self) -> None:
        task = asyncio.create_task(self._channel.close())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
