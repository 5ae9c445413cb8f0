"""A real HTTP server that speaks as much V2 as the demo's load needs, and misbehaves on request."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from appliance.demo.manifest import DemoApplication, DemoVariant

CLASSES = 3


def application(folder: Path, name: str = "shapes", slo_ms: float = 300.0) -> DemoApplication:
    """Rows say their class, the largest value's place; twenty real ones are on disk."""
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
    """Answers with the row as its scores; ``decide(n)``: (status, delay in s) of the n-th query from 0."""

    def __init__(self, decide: Callable[[int], tuple[int, float]] = lambda n: (200, 0.0), port: int = 0):
        self._decide = decide
        self.port = port
        self.queries = 0
        self.ready = True
        self.polls = 0
        self.keys: set[str] = set()
        self.peers: set[tuple] = set()
        self._tasks: set[asyncio.Task] = set()

    async def __aenter__(self) -> V2Server:
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_exc) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                writer.write(await self._answer(head, reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        if head.startswith("GET /v2/health/ready "):
            self.polls += 1
            return answer(200 if self.ready else 503)
        sizes = dict(re.findall(r"(?i)\r\n([\w-]*content-length): (\d+)", head))
        body = await reader.readexactly(int(sizes["Content-Length"]))
        self.peers.add(writer.get_extra_info("peername"))
        self.keys.add(re.search(r"\r\nAuthorization: (.*)\r\n", head)[1])
        status, delay = self._decide(self.queries)
        self.queries += 1
        await asyncio.sleep(delay)
        if status != 200:
            return answer(status)
        header = json.dumps({"parameters": {"variant": "large", "accuracy": 90.0, "queue_ms": 1.0, "batch_size": 1}})
        return answer(200, header.encode(), body[int(sizes["Inference-Header-Content-Length"]) :])


def answer(status: int, header: bytes = b"", output: bytes = b"") -> bytes:
    lines = f"HTTP/1.1 {status} as-told\r\nContent-Length: {len(header) + len(output)}\r\n"
    lines += f"Inference-Header-Content-Length: {len(header)}\r\n" if header else ""
    return lines.encode() + b"\r\n" + header + output
