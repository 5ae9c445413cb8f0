"""Connections of recording clients.

One query is in flight on each HTTP/1.1 connection, many on a gRPC channel.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import grpc
import grpc.aio
import httptools
from tritonclient.grpc import service_pb2

from benchmarks.load.grpc_peer import METHOD

#: a lost server is looked for again this soon, ms
RECONNECT_MS = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 300)]


class Reply(NamedTuple):
    """The end of a query as its connection saw it; see :class:`.history.Ended`."""

    end: str
    status: int = 0
    answer_id: str = ""
    variant: str = ""
    device: str = ""
    accuracy: float = 0.0
    output: bytes = b""
    note: str = ""
    rows: int = 0
    inside_ms: float = 0.0


class HttpConnection(asyncio.Protocol):
    """A keep-alive connection.

    Args:
        extra: called with each response that no query waits for.
    """

    def __init__(self, extra: Callable[[Reply], None]) -> None:
        self._extra = extra
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[Reply] | None = None
        self._body = b""
        self._header_size = 0
        self._transport: Any = None
        self.usable = False

    @classmethod
    async def open(cls, port: int, extra: Callable[[Reply], None], host: str = "127.0.0.1") -> HttpConnection:
        """Raises OSError: nothing listens."""
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: cls(extra), host, port)
        return connection

    async def ask(self, request: bytes) -> Reply:
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiting

    def close(self) -> None:
        self.usable = False
        self._transport.abort()

    # --- asyncio.Protocol ---

    def connection_made(self, transport: Any) -> None:
        self._transport, self.usable = transport, True

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(Reply("unknown", note=f"no HTTP: {error}"))
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.usable = False
        if self._waiting is not None:
            self._end(Reply("unknown", note=f"connection lost: {error or 'closed'}"))

    # --- httptools ---

    def on_message_begin(self) -> None:
        self._body, self._header_size = b"", 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"inference-header-content-length":
            self._header_size = int(value)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        self.usable = self.usable and self._parser.should_keep_alive()
        if status != 200:
            self._end(Reply("fail", status, note=self._body[:300].decode("latin-1")))
            return
        header = json.loads(self._body[: self._header_size])
        parameters = header["parameters"]
        output = self._body[self._header_size :]
        answer = header["id"], parameters["variant"], parameters["device"], parameters["accuracy"], output
        inside_ms = parameters["queue_ms"] + parameters["model_ms"]
        self._end(Reply("ok", status, *answer, rows=parameters["batch_size"], inside_ms=inside_ms))

    def _end(self, reply: Reply) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            self._extra(reply)
        elif not waiting.done():
            waiting.set_result(reply)


class GrpcChannel:
    """A channel with a connection of its own, which never repeats a call by itself."""

    def __init__(self, address: str, key: str) -> None:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0), *RECONNECT_MS]
        self._channel = grpc.aio.insecure_channel(address, options)
        self._infer = self._channel.unary_unary(METHOD)
        self._metadata = (("authorization", f"Bearer {key}"),)

    async def ask(self, request: bytes) -> Reply:
        try:
            answer = service_pb2.ModelInferResponse.FromString(await self._infer(request, metadata=self._metadata))
        except grpc.aio.AioRpcError as error:
            pushed = any(name == "grpc-retry-pushback-ms" for name, _ in error.trailing_metadata() or ())
            # Servers say when to retry; the library, of a connection that failed, does not.
            cut = error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED) and not pushed
            refused = "Connection refused" in (error.details() or "")
            end = "unknown" if cut and not refused else "fail"
            return Reply(end, error.code().value[0], note=f"{error.code().name} {error.details()}"[:300])
        parameters = answer.parameters
        return Reply(
            "ok",
            0,
            answer.id,
            parameters["variant"].string_param,
            parameters["device"].string_param,
            parameters["accuracy"].double_param,
            answer.raw_output_contents[0],
        )

    async def close(self) -> None:
        await self._channel.close()


def http_request(application: str, key: str, id: str, row: bytes, columns: list[int], name: str = "x") -> bytes:
    """A whole V2 HTTP request with one binary row of the input ``name``."""
    tensor = {"name": name, "datatype": "FP32", "shape": [1, *columns], "parameters": {"binary_data_size": len(row)}}
    head = json.dumps({"id": id, "inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    lines = (
        f"POST /v2/models/{application}/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Length: {len(head) + len(row)}\r\nInference-Header-Content-Length: {len(head)}\r\n\r\n"
    )
    return lines.encode() + head + row


def grpc_request(application: str, id: str, row: bytes, columns: list[int]) -> bytes:
    """A serialised ``ModelInferRequest`` with one raw row ``x``."""
    message = service_pb2.ModelInferRequest(model_name=application, id=id)
    message.inputs.add(name="x", datatype="FP32", shape=[1, *columns])
    message.raw_input_contents.append(row)
    return message.SerializeToString()
