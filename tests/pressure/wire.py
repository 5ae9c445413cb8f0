"""V2 HTTP by hand, for clients that do what no library would."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import struct

import numpy as np
from tritonclient.grpc import service_pb2 as pb

from tests.gateway.conftest import AUTH


def request(application: str, x: np.ndarray, **headers: str) -> bytes:
    parameters = {"binary_data_size": x.nbytes}
    tensor = {"name": "x", "datatype": "FP32", "shape": list(x.shape), "parameters": parameters}
    described = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    given = {**AUTH, "Inference-Header-Content-Length": str(len(described)), **headers}
    return post(f"/v2/models/{application}/infer", described + x.tobytes(), **given)


def message(application: str, x: np.ndarray) -> bytes:
    return pb.ModelInferRequest(
        model_name=application,
        inputs=[{"name": "x", "datatype": "FP32", "shape": list(x.shape)}],
        raw_input_contents=[x.tobytes()],
    ).SerializeToString()


def post(path: str, body: bytes, **headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: a", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, binary output, or the body where there is none)."""
    status, headers = parse(await reader.readuntil(b"\r\n\r\n"))
    body = await reader.readexactly(int(headers["content-length"]))
    return status, headers, body[int(headers.get("inference-header-content-length", 0)) :]


def parse(head: bytes) -> tuple[int, dict[str, str]]:
    """(status, headers by lower-case name) of the head of an answer."""
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    return int(first.split()[1]), {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}


class Client:
    """A blocking connection to a port of this machine; a context manager."""

    def __init__(self, port: int, receive_bytes: int | None = None):
        self.socket = socket.socket()
        if receive_bytes is not None:
            # Before it is connected: the window that the peer receives depends on it.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(60)
        self.socket.connect(("127.0.0.1", port))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_error) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    @property
    def answered(self) -> bool:
        """Whether something can be read, be it that the peer has closed."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def untaken(self) -> int:
        """Bytes sent that the peer has not read, in either kernel (``/proc/net/tcp``)."""
        host, port = self.socket.getsockname()
        # The address is shown as one number in the machine's own byte order.
        own = f"{struct.unpack('=I', socket.inet_aton(host))[0]:08X}:{port:04X}"
        waiting = 0
        with open("/proc/net/tcp") as table:
            for fields in map(str.split, table):
                sending, _, received = fields[4].partition(":")
                if fields[1] == own:
                    waiting += int(sending, 16)
                elif fields[2] == own:
                    waiting += int(received, 16)
        return waiting

    def answer(self, piece: int = 65536, pause=lambda: None) -> tuple[int, dict[str, str], bytes]:
        """The next answer, in pieces of ``piece`` bytes with ``pause`` behind each."""
        head = b""
        while b"\r\n\r\n" not in head:
            part = self.socket.recv(1)
            assert part, f"closed after {head!r}"
            head += part
        status, headers = parse(head)
        body = b""
        while len(body) < int(headers["content-length"]):
            part = self.socket.recv(min(piece, int(headers["content-length"]) - len(body)))
            assert part, f"closed after {len(body)} bytes of {headers['content-length']}"
            body += part
            pause()
        return status, headers, body[int(headers.get("inference-header-content-length", 0)) :]

    def rest(self) -> bytes:
        received = b""
        while part := self._receive():
            received += part
        return received

    def _receive(self) -> bytes:
        try:
            return self.socket.recv(65536)
        except ConnectionResetError:
            return b""

    def vanish(self, reset: bool) -> None:
        if reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()
