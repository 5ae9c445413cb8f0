"""Each query of a stream is answered once and in its turn, or forgotten once, whatever happens."""

from __future__ import annotations

import random
import time
from types import SimpleNamespace

import hpack
import pytest
from tritonclient.grpc import service_pb2 as pb

from tests.net import wire as h2
from tests.net.http2_client import HEAD, Unplugged, prefixed
from workers.gateway.errors import Invalid, ModelFailed, Overloaded
from workers.gateway.rpc_stream import Streaming
from workers.net.grpc import Admitted, MessageParser
from workers.net.limits import Rate

KIB = 1024


class Plane:
    """Gives queries (id, ``stream:n``, fate, any bytes) their fate at any time."""

    def __init__(self, rnd: random.Random) -> None:
        self.rnd = rnd
        self.waiting: dict[str, object] = {}
        self.fates: dict[str, str] = {}

    def infer(self, waits, data, *_) -> SimpleNamespace:
        id, fate, _ = bytes(data).decode("latin-1").split(" ", 2)
        assert id not in self.fates, "handed on twice"
        self.fates[id] = fate
        if fate == "wrong":
            raise Invalid(id)
        if fate == "raises":
            raise RuntimeError("a fault of ours")
        if fate == "full":
            waits.settle(Overloaded(id))
        else:
            self.waiting[id] = waits
        return SimpleNamespace(query=SimpleNamespace(id=id))

    def settle(self) -> None:
        id = self.rnd.choice(list(self.waiting))
        waits = self.waiting.pop(id)
        if self.rnd.random() < 0.1:
            waits.settle(ModelFailed(id))
        else:
            size = self.rnd.choice([0, 10, 10, 2000, 60_000])
            waits.settle(pb.ModelInferResponse(id=id, raw_output_contents=[bytes(size)]).SerializeToString())

    def refuse(self, waits, error) -> None:
        waits.settle(error.with_traceback(None))

    def withdraw(self, flight) -> None:
        # Fails where it was answered or cancelled before.
        del self.waiting[flight.query.id]
        self.fates[flight.query.id] = "cancelled"


class Talk:
    def __init__(self, rnd: random.Random) -> None:
        self.rnd = rnd
        self.plane = Plane(rnd)
        self.endpoint = Streaming(self.plane)
        unplugged = Unplugged(message_bytes=100_000, buffered_bytes=rnd.choice([60_000, 400_000, 4_000_000]))
        echo, self.server, self.connection = unplugged.echo, unplugged.server, unplugged.connection
        self.transport = unplugged.transport
        echo.admit = lambda head: Admitted(echo.key, self.endpoint, client="a key")
        self.encoder = hpack.Encoder()
        self.asked: dict[int, list[str]] = {}
        self.hear(h2.PREFACE + h2.settings({h2.INITIAL_WINDOW_SIZE: rnd.choice([0, 100, 5000, 1 << 20])}))

    def hear(self, data: bytes) -> None:
        while data:
            size = self.rnd.choice([3, 50, 2000, 100_000])
            self.connection.data_received(data[:size])
            data = data[size:]

    def act(self) -> None:
        rnd = self.rnd
        numbers = list(self.asked)
        kind = rnd.randrange(22) if numbers else 0
        number = rnd.choice(numbers[-4:]) if numbers else 0
        if kind == 0:
            number = 2 * len(numbers) + 1
            self.asked[number] = []
            self.hear(h2.frame(h2.HEADERS, h2.END_HEADERS, number, self.encoder.encode(HEAD)))
        elif kind < 7:
            self.ask(number)
        elif kind < 16:
            for _ in range(min(len(self.plane.waiting), rnd.choice([1, 1, 10]))):
                if self.plane.waiting:
                    self.plane.settle()
        elif kind < 19:
            self.hear(h2.window_update(rnd.choice([0, number]), rnd.choice([20, 5000, 200_000])))
        elif kind == 19:
            self.hear(h2.rst_stream(number, h2.CANCEL))
        elif kind == 20:
            (self.connection.resume_writing if self.connection.paused else self.connection.pause_writing)()
        elif rnd.random() < 0.1:
            # Long after.
            for call in list(self.connection.streams.values()):
                call.sweep(time.monotonic() + 1000 * (rnd.random() < 0.5))

    def ask(self, number: int) -> None:
        rnd, body = self.rnd, b""
        stream = self.connection.streams.get(number)
        if stream is None or not stream.reading:
            # Frames behind a stream's end break the protocol, and are tested elsewhere.
            return
        for _ in range(rnd.choice([1, 1, 3, 100])):
            id = f"{number}:{len(self.asked[number])}"
            self.asked[number].append(id)
            fate = rnd.choice(["well"] * 8 + ["wrong", "raises", "full"])
            body += prefixed(f"{id} {fate} ".encode() + bytes(rnd.choice([0, 10, 10, 500])))
        if rnd.random() < 0.1:
            # Compressed, and nothing says how.
            body += prefixed(b"a", 1)
            if rnd.random() < 0.5:
                body += prefixed(b"behind it")
        flags = h2.END_STREAM * (rnd.random() < 0.15)
        self.hear(h2.frame(h2.DATA, 0, number, body) + h2.frame(h2.DATA, flags, number, b""))

    def received(self) -> dict[int, list[str]]:
        out, offset, found, messages = bytes(self.transport.out), 0, {}, {}
        while offset < len(out):
            length, kind, _, number = h2.parse_header(out, offset)
            begin, offset = offset + h2.HEADER_BYTES, offset + h2.HEADER_BYTES + length
            if kind == h2.GOAWAY:
                raise AssertionError(out[begin:offset])
            if kind == h2.DATA:
                for _, body in messages.setdefault(number, MessageParser(1 << 24, Rate())).feed(out[begin:offset]):
                    one = pb.ModelStreamInferResponse.FromString(bytes(body))
                    found.setdefault(number, []).append(one.infer_response.id or one.error_message)
        return found


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_to_streams_is_accounted_for(seed):
    rnd = random.Random(seed)
    answered = cancelled = waited = 0
    for _ in range(25):
        talk = Talk(rnd)
        for _ in range(rnd.randrange(20, 150)):
            talk.act()
            waited += any(stream.held for stream in talk.connection.streams.values())
            open_numbers = {stream._call.number for stream in talk.endpoint.open}
            assert open_numbers <= talk.connection.streams.keys()
        if rnd.random() < 0.3:
            talk.endpoint.stop()
        received = talk.received()
        for number, ids in received.items():
            # Those that nobody could read have no id.
            expected = [id for id in talk.asked[number] if talk.plane.fates.get(id) not in ("wrong", "raises")]
            given = [id for id in ids if talk.plane.fates.get(id) not in ("wrong", None)]
            assert given == expected[: len(given)], "in their turn, and none left out"
            answered += len(ids)
        if talk.connection.paused:
            talk.connection.resume_writing()
        talk.connection.connection_lost(None)
        assert (talk.server.streams, talk.server.reading, talk.server.unsent) == (0, 0, 0)
        assert not talk.plane.waiting, "forgotten, each of them"
        assert not talk.endpoint.open
        cancelled += list(talk.plane.fates.values()).count("cancelled")
    assert min(answered, cancelled, waited) > 50
