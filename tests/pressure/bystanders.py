"""Clients that have nothing to do with the trouble."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import grpc.aio
import numpy as np
import onnxruntime
from tritonclient.grpc import service_pb2 as pb

from tests.gateway.conftest import AUTH, KEY, GatewayProcess

from .wire import answer, message, request

INPUTS = 64
PAUSE_S = 0.002


class Bystanders:
    """A context manager in which clients query from a thread.

    While it is entered, ``http`` connections and ``grpc`` channels ask one query after the other. Leaving it fails
    where any of them noticed anything, or where they were hardly served at all.

    Attributes:
        answered: queries so far.
    """

    def __init__(self, gateway: GatewayProcess, model: Path, http: int = 3, grpc: int = 1, least: int = 20):
        self._gateway = gateway
        self._http, self._grpc = http, grpc
        self._least = least
        self._inputs = np.random.default_rng(11).standard_normal((INPUTS, 1, 4), dtype=np.float32)
        session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        self._outputs = [session.run(None, {"x": x})[0] for x in self._inputs]
        self._over = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._failed: list[str] = []
        self._served = [0] * (http + grpc)

    @property
    def answered(self) -> int:
        return sum(self._served)

    def __enter__(self) -> Bystanders:
        self._thread.start()
        return self

    def __exit__(self, kind, *_error) -> None:
        self._over = True
        self._thread.join(120)
        if kind is None:
            assert not self._thread.is_alive(), "a bystander waits for its answer still"
            assert self._failed == []
            assert min(self._served) >= self._least, f"queries answered, by client: {self._served}"

    async def _run(self) -> None:
        clients = [self._over_http] * self._http + [self._over_grpc] * self._grpc
        await asyncio.gather(*(self._client(place, client) for place, client in enumerate(clients)))

    async def _client(self, place: int, client) -> None:
        try:
            await client(place)
        except Exception as error:
            self._failed.append(f"client {place}: {type(error).__name__}: {error}")

    def _more(self, place: int) -> bool:
        # However short the trouble was: some queries during it, and some after it.
        return not self._failed and (not self._over or self._served[place] < self._least)

    async def _over_http(self, place: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._gateway.port)
        number = place
        while self._more(place):
            writer.write(request("app", self._inputs[number % INPUTS]))
            status, _, outputs = await asyncio.wait_for(answer(reader), 60)
            self._check(place, number, status, outputs)
            number += 1
            await asyncio.sleep(PAUSE_S)
        writer.close()

    async def _over_grpc(self, place: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(self._gateway.grpc, options) as channel:
            infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            number = place
            while self._more(place):
                x = self._inputs[number % INPUTS]
                content = await infer(message("app", x), metadata=(("authorization", f"Bearer {KEY}"),), timeout=60)
                self._check(place, number, 200, pb.ModelInferResponse.FromString(content).raw_output_contents[0])
                number += 1
                await asyncio.sleep(PAUSE_S)

    def _check(self, place: int, number: int, status: int, content: bytes) -> None:
        wanted = self._outputs[number % INPUTS]
        right = status == 200 and len(content) == wanted.nbytes
        right = right and np.allclose(np.frombuffer(content, np.float32), wanted.ravel(), 1e-4, 1e-5)
        if not right:
            self._failed.append(f"client {place}, query {number}: {status} {content[:300]!r}")
        self._served[place] += 1


assert AUTH["Authorization"] == f"Bearer {KEY}"
