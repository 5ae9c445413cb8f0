"""A peer that speaks no frames, or breaks off in one, costs only its connection.

To the executor it costs that connection, and nobody else anything. A device that answers in no frames costs the gateway
that device.
"""

from __future__ import annotations

import asyncio
import json
import socket

import httpx2
import msgspec
import pytest

from tests.executor import harness
from tests.gateway.conftest import AUTH, application, config, plan, until, wait_for
from tests.gateway.test_failures import BODY, PATH
from workers.protocol import frames
from workers.protocol.frame_connection import FrameConnection, encode
from workers.protocol.frames import Hello, Moved, RequestShape, RunBatch, TensorHeader, Withdraw
from workers.protocol.framing import MAX_BODY, MAX_HEADER, PREFIX, VERSION

from .conftest import MIB, SLO_S

HELLO = b"".join(encode(Hello("gateway", "troublesome")))


def prefixed(header: bytes, body: bytes = b"", /, magic: bytes = b"NR", version: int = VERSION, **sizes: int) -> bytes:
    prefix = PREFIX.pack(magic, version, 0, sizes.get("header", len(header)), sizes.get("body", len(body)))
    return prefix + header + body


def batch(id: int, nbytes: int = 16, budget_s: float = 1.0) -> RunBatch:
    """A batch of one query, whose input need not have the bytes of its shape."""
    return RunBatch(
        id, "app", 1, 1, (RequestShape(1, (TensorHeader("x", "FP32", (1, 4), nbytes),)),), ((id, 0, budget_s),)
    )


MALFORMED = {
    "garbage": bytes(range(256)) * 40,
    "garbage after Hello": HELLO + b"\xff" * 5000,
    "another version": HELLO + prefixed(msgspec.msgpack.encode(Withdraw(1)), version=VERSION + 1),
    "a header too large": HELLO + prefixed(b"", header=MAX_HEADER + 1),
    "a body too large": HELLO + prefixed(b"", body=MAX_BODY + 1),
    "a header that is no message": HELLO + prefixed(b"\xc1\xc1\xc1"),
    "an empty header": HELLO + prefixed(b""),
    "a message that nobody knows": HELLO + prefixed(msgspec.msgpack.encode(["Shutdown", 1])),
    "a message that is not for executors": HELLO + prefixed(msgspec.msgpack.encode(["Refusal", 1, "late", "x", True])),
    "a message with fields of other types": HELLO + prefixed(msgspec.msgpack.encode(["Withdraw", "first"])),
    "a message that lacks fields": HELLO + prefixed(msgspec.msgpack.encode(["RunBatch", 1, "app"])),
    "a message that another role may send": HELLO + prefixed(msgspec.msgpack.encode(["MetricsRequest"])),
    "a second Hello": HELLO + HELLO,
    "a message before Hello": b"".join(encode(Moved(1))),
}
CUT_OFF = {
    "within the prefix": HELLO + b"NR\x01",
    "within the header": HELLO + prefixed(b"\x93", header=100),
    "within a body": HELLO + b"".join(encode(batch(1), [bytes(16)]))[:-7],
    "within a large body": HELLO + prefixed(msgspec.msgpack.encode(batch(1)), b"a" * 100_000, body=50 * MIB),
    "within a body that is only claimed": HELLO + prefixed(msgspec.msgpack.encode(batch(1)), b"a", body=MAX_BODY),
}


class Peer:
    """A connection to the executor's socket that sends any bytes."""

    def __init__(self, served):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(served.executor.endpoint.removeprefix("unix:"))

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_error) -> None:
        self.socket.close()

    def closed(self) -> bool:
        while True:
            try:
                if not self.socket.recv(65536):
                    return True
            except (ConnectionResetError, BrokenPipeError):
                return True


@pytest.mark.parametrize("kind", CUT_OFF)
def test_a_frame_that_is_cut_off_holds_nobody_up(served, kind):
    before = served.rss("executor")
    with served.bystanders() as others, Peer(served) as peer:
        peer.socket.sendall(CUT_OFF[kind])
        answered = others.answered
        wait_for(lambda: others.answered > answered + 40, "others are served meanwhile")
        assert served.rss("executor") - before < 40 * MIB


def test_much_of_it_leaves_nothing_in_the_executor(served):
    for data in MALFORMED.values():
        with Peer(served) as peer:
            peer.socket.sendall(data)
            assert peer.closed()
    before = served.rss("executor")
    with served.bystanders(least=60):
        for _ in range(20):
            for data in MALFORMED.values():
                with Peer(served) as peer:
                    peer.socket.sendall(data)
                    assert peer.closed()
            for data in CUT_OFF.values():
                with Peer(served) as peer:
                    peer.socket.sendall(data)
    assert served.rss("executor") - before < 16 * MIB


async def test_a_query_that_is_wrong_in_itself_is_refused_and_its_neighbours_run(tmp_path, tiny_models):
    # Two batches come in one write, the first with a body that is too short: one refusal and one result, on one
    # connection.
    path = tiny_models["quick"]
    short, right = batch(1, 12, SLO_S), batch(2, 16, SLO_S)
    async with harness.Executor(tmp_path) as executor:
        only = harness.resident(harness.variant(1, path, name="only"), 0.001)
        peer = await executor.applied(1, [only], [harness.application("app", SLO_S)], [path])
        peer.connection.send_all([(short, [bytes(12)]), (right, [bytes(16)])])
        refusal, result = (await peer.answer(1))[0], (await peer.answer(2))[0]
        assert (refusal.code, refusal.retryable) == ("invalid", False)
        assert result.variant == "only"


# --- a device that answers in no frames -------------------------------------------------------------------------------

WARM = frames.WarmVariant(1, "big", "numbers", 95.0, True)
STATE = b"".join(encode(frames.ExecutorState("bad", 1, (WARM,), False, {}, 0.0)))
ANSWERS = {
    "garbage": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "another version": prefixed(msgspec.msgpack.encode(["Refusal", 1, "late", "x", True]), version=VERSION + 1),
    "a message that is not for gateways": b"".join(encode(Withdraw(1))),
    "half a frame": prefixed(b"\x93", header=100),
}


class BadDevice:
    """Says that it is warm, answers its first query with given bytes, and hangs up."""

    def __init__(self, folder, answer: bytes):
        self.endpoint = f"unix:{folder}/bad.sock"
        self._answer = answer
        self.asked = 0

    async def listen(self) -> asyncio.Server:
        return await asyncio.get_running_loop().create_unix_server(
            lambda: FrameConnection(frames.ToExecutor, self._received, lambda *_: None),
            self.endpoint.removeprefix("unix:"),
        )

    def _received(self, connection, message, _body) -> None:
        if isinstance(message, Hello):
            connection.transport.write(STATE)
        elif isinstance(message, frames.RunBatch):
            self.asked += 1
            connection.transport.write(self._answer)
            connection.close()


@pytest.mark.parametrize("kind", ANSWERS)
async def test_a_device_that_answers_in_no_frames_has_its_queries_answered_elsewhere(
    gateways, devices, tmp_path_factory, kind
):
    bad = BadDevice(tmp_path_factory.mktemp("b"), ANSWERS[kind])
    server = await bad.listen()
    try:
        (good,) = await asyncio.to_thread(devices, "good")
        await asyncio.to_thread(good.warm, ("numbers", "big"))
        endpoints = {"good": good.endpoint, "bad": bad.endpoint}
        placed = {name: [("numbers", "big")] for name in endpoints}
        gateway = await asyncio.to_thread(gateways, config(plan(1, placed, endpoints), [application("numbers")]))
        await until(lambda: all(d["warm"] for d in gateway.health()["devices"].values()), "both are warm")
        limits = httpx2.Limits(max_connections=40)
        async with httpx2.AsyncClient(base_url=gateway.url, headers=AUTH, timeout=60, limits=limits) as http:
            answers = await asyncio.gather(*(http.post(PATH, content=BODY) for _ in range(40)))
        assert bad.asked
        assert not [answer.text for answer in answers if answer.status_code != 200]
        assert all(json.loads(answer.content)["outputs"][0]["data"] == [2, 4, 6, 8] for answer in answers)
        assert {answer.json()["parameters"]["device"] for answer in answers} == {"good"}
        await until(lambda: gateway.health()["in_flight"] == 0, "nothing stays behind")
    finally:
        server.close()
