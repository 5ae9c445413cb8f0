"""A real HTTP server on a real socket that speaks as much V2 as the demo's load needs, and misbehaves as told."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from appliance.demo.manifest import DemoApplication, DemoVariant

CLASSES = 3


def application(folder: Path, name: str = "shapes", slo_ms: float = 300.0) -> DemoApplication:
    """An application whose rows say their class: the largest value's place. Twenty real rows on disk."""
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


class V2Server:
    """Answers with the row itself as its scores. ``decide(n)`` says what the n-th query (from 0) gets: a status, with
    a delay in seconds; status 0 closes the connection without an answer."""

    def __init__(self, decide: Callable[[int], tuple[int, float]] = lambda n: (200, 0.0), port: int = 0):
        self._decide = decide
        self._port = port
        self._serving: set[asyncio.Task] = set()
        self.queries = 0
        self.answered: Counter = Counter()
        self.ready = True
        self.polls = 0
        self.keys: set[str] = set()
        self.connections = 0
        self.binary = True
        self.close_each = False

    async def __aenter__(self) -> V2Server:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_exc) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.current_task())
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in head[1:] if line)}
                body = await reader.readexactly(int(headers["content-length"]))
                if head[0].startswith("GET /v2/health/ready"):
                    self.polls += 1
                    self._write(writer, 200 if self.ready else 503, b"")
                    continue
                assert head[0].startswith("POST /v2/models/")
                self.keys.add(headers["authorization"])
                status, delay = self._decide(self.queries)
                self.queries += 1
                await asyncio.sleep(delay)
                if status == 0:
                    return
                self.answered[status] += 1
                if status == 200:
                    self._answer(writer, headers, body)
                else:
                    self._write(writer, status, b'{"error":"as told"}')
                if self.close_each:
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def _answer(self, writer: asyncio.StreamWriter, headers: dict[str, str], body: bytes) -> None:
        length = int(headers["inference-header-content-length"])
        tensor = json.loads(body[:length])["inputs"][0]
        assert tensor["parameters"]["binary_data_size"] == len(body) - length == 4 * math.prod(tensor["shape"])
        row = body[length:]
        output = {"name": "y", "datatype": "FP32", "shape": [1, math.prod(tensor["shape"])]}
        if self.binary:
            output["parameters"] = {"binary_data_size": len(row)}
        else:
            output["data"], row = np.frombuffer(row, "<f4").tolist(), b""
        parameters = {"variant": "large", "accuracy": 90.0, "device": "n/cpu0", "queue_ms": 0.1, "batch_size": 1}
        header = json.dumps({"model_name": "shapes", "outputs": [output], "parameters": parameters}).encode()
        extra = f"Inference-Header-Content-Length: {len(header)}\r\n" if self.binary else ""
        extra += "Connection: close\r\n" if self.close_each else ""
        self._write(writer, 200, header + row, extra)

    @staticmethod
    def _write(writer: asyncio.StreamWriter, status: int, body: bytes, extra: str = "") -> None:
        writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: {len(body)}\r\n{extra}\r\n".encode() + body)
