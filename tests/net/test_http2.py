"""HTTP/2 by RFC 9113: valid requests, cut up in any way, and orderly ends."""

from __future__ import annotations

import asyncio
import dataclasses
import struct

import grpc
import grpc.aio
from hypothesis import given
from hypothesis import strategies as st

from workers.net.http2 import Http2Connection
from workers.net.http2.stream import Http2Stream
from workers.net.limits import Http2Limits

from . import wire as h2
from .http2_client import HEAD, Peer, connected, eventually, prefixed, serving, still_serves, to

U32 = struct.Struct(">I").pack
#: floods stay short, so that a busy machine reads them within a second
LIMITS = Http2Limits(control_frames_per_s=2_000)
OK = {b"grpc-status": b"0"}


async def test_a_request_may_come_in_any_pieces():
    async with serving() as (server, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        peer = Peer(reader, writer)
        request = h2.PREFACE + h2.settings({}) + peer.head(1)
        request += h2.frame(h2.DATA, h2.END_STREAM, 1, prefixed(b"piece by piece"))
        writer.transport.set_write_buffer_limits(0)
        for place in range(len(request)):
            writer.write(request[place : place + 1])
            await writer.drain()
            if not place % 16:
                await asyncio.sleep(0)
        data, fields = await peer.response(1)
        assert data == prefixed(b"piece by piece")
        assert fields == OK | {
            b":status": b"200",
            b"content-type": b"application/grpc",
            b"grpc-accept-encoding": b"gzip,deflate",
        }
        writer.close()


class Collected(Http2Stream):
    __slots__ = ("body", "ended")

    def __init__(self, *given):
        super().__init__(*given)
        self.body, self.ended = b"", False

    def received(self, data, end: bool) -> None:
        self.body += data
        self.ended = end

    def sweep(self, now: float) -> None:
        pass


@given(
    st.lists(st.tuples(st.binary(max_size=300), st.none() | st.integers(0, 255)), min_size=1, max_size=8),
    st.lists(st.integers(1, 400), max_size=30),
)
def test_data_is_taken_as_it_comes_with_padding_too(frames, cuts):
    rest = b""
    for place, (body, padding) in enumerate(frames):
        flags = h2.END_STREAM * (place == len(frames) - 1)
        if padding is not None:
            flags, body = flags | h2.PADDED, bytes([padding]) + body + b"\xee" * padding
        rest += h2.frame(h2.DATA, flags, 1, body)

    async def main() -> tuple[Collected, Http2Connection]:
        async with serving() as (server, _), connected(server.port) as peer:
            server.open = Collected
            peer.send(peer.head(1))
            await eventually(lambda: server.streams == 1, "it is there")
            (connection,) = server.connections
            stream, left = connection.streams[1], rest
            for cut in [*cuts, len(rest)]:
                assert not stream.ended or not left
                connection.data_received(left[:cut])
                left = left[cut:]
                assert len(connection._parser.rest) <= h2.HEADER_BYTES
            return stream, connection

    stream, connection = asyncio.run(main())
    assert (stream.body, stream.ended) == (b"".join(body for body, _ in frames), True)
    # Padding takes of the windows what it has, too.
    whole = sum(len(body) + (0 if padding is None else 1 + padding) for body, padding in frames)
    assert (stream.unread, connection._unread) == (whole, whole)


async def test_a_frame_with_more_padding_than_it_has_bytes_is_not_waited_for():
    async with serving() as (server, _), connected(server.port) as peer:
        whole = h2.frame(h2.DATA, h2.PADDED, 1, bytes([200]) + bytes(100))
        peer.send(peer.head(1), whole[: h2.HEADER_BYTES + 1])
        assert await peer.ended() == (h2.PROTOCOL_ERROR, "padding: is as long as the frame, or longer")


async def test_an_answer_goes_no_further_than_the_client_s_windows():
    message = bytes(range(256)) * 400
    async with serving() as (server, _), connected(server.port, {h2.INITIAL_WINDOW_SIZE: 10}) as peer:
        peer.send(peer.head(1))
        body = prefixed(message)
        for place in range(0, len(body), 16_384):
            peer.send(h2.frame(h2.DATA, 0, 1, body[place : place + 16_384]))
        peer.send(h2.frame(h2.DATA, h2.END_STREAM, 1))
        await peer.until(h2.HEADERS)
        data = b""
        while len(data) < 10:
            data += (await peer.until(h2.DATA))[2]
        assert server.unsent == len(message)
        # Another stream's small answer is not held up by the first one's window.
        peer.ask(3, b"tiny")
        while (await peer.frame())[:3] != (h2.HEADERS, h2.END_STREAM | h2.END_HEADERS, 3):
            pass
        peer.send(h2.settings({h2.INITIAL_WINDOW_SIZE: 40_000}))
        while len(data) < 40_000:
            data += (await peer.until(h2.DATA))[2]
        assert len(data) == 40_000
        peer.send(h2.window_update(1, 1 << 20))
        while len(data) < h2.DEFAULT_WINDOW - len(prefixed(b"tiny")):
            data += (await peer.until(h2.DATA))[2]
        # Now it is the connection's window that is used up.
        assert len(data) == h2.DEFAULT_WINDOW - len(prefixed(b"tiny"))
        peer.send(h2.window_update(0, 1 << 20))
        rest, fields = await peer.response(1)
        assert data + rest == body
        assert fields[b"grpc-status"] == b"0"
        assert server.unsent == 0


async def test_windows_are_given_back_so_that_any_amount_can_be_sent():
    message = b"x" * (3 * LIMITS.stream_window_bytes)
    async with (
        serving(message_bytes=1 << 23, most_bytes=1 << 25) as (server, _),
        grpc.aio.insecure_channel(
            f"127.0.0.1:{server.port}", [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        ) as channel,
    ):
        answers = await asyncio.gather(*[channel.unary_unary("/echo")(message) for _ in range(4)])
        assert answers == [message] * 4
        assert (server.reading, server.unsent) == (0, 0)


async def test_many_streams_of_one_connection_are_answered_in_any_order():
    async with serving() as (server, echo), connected(server.port) as peer:
        for number in range(1, 200, 2):
            peer.ask(number, b"%d" % number, to("/hold"))
        await eventually(lambda: len(echo.held) == 100, "all are there")
        for call in reversed(echo.held):
            call.settle(b"to %d" % call.number)
        for number in range(199, 0, -2):
            assert (await peer.response(number))[0] == prefixed(b"to %d" % number)


async def test_others_have_their_turn_between_calls_that_came_in_one_read():
    async with serving() as (server, echo), connected(server.port) as many, connected(server.port) as other:
        count, received = 8 * LIMITS.requests_per_read, []

        def note(call, data) -> None:
            received.append(call.connection)
            call.settle(data)
            if len(received) == 1:
                other.ask(1, b"other")

        echo.hear = note
        many.send(*[many.head(n) + h2.frame(h2.DATA, h2.END_STREAM, n, prefixed(b"x")) for n in range(1, 2 * count, 2)])
        assert (await other.response(1))[0] == prefixed(b"other")
        await eventually(lambda: len(received) == count + 1, "all have begun")
        # Its later requests, too.
        many.ask(2 * count + 1, b"last")
        assert (await many.response(2 * count + 1))[0] == prefixed(b"last")
        (one,) = [place for place, connection in enumerate(received) if connection is not received[0]]
        assert one <= 3 * LIMITS.requests_per_read


async def held_call(peer, echo, number: int) -> None:
    count = len(echo.held)
    peer.ask(number, b"held", to("/hold"))
    await eventually(lambda: len(echo.held) > count, "it is there")


ANY_STREAM = (2**31 - 1).to_bytes(4, "big")


async def test_a_server_that_stops_takes_what_was_on_its_way_and_answers_it():
    async with serving(announce_s=300.0) as (server, echo), connected(server.port) as peer:
        await held_call(peer, echo, 1)
        draining = asyncio.create_task(server.drain(60))
        assert (await peer.until(h2.GOAWAY))[2] == ANY_STREAM + U32(h2.NO_ERROR)
        _, _, ping = await peer.until(h2.PING)
        await held_call(peer, echo, 3)
        peer.send(h2.frame(h2.PING, h2.ACK, 0, ping))
        assert (await peer.until(h2.GOAWAY))[2] == U32(3) + U32(h2.NO_ERROR)
        peer.ask(5, b"after")
        assert await peer.until(h2.RST_STREAM) == (0, 5, U32(h2.REFUSED_STREAM))
        for call in echo.held:
            call.settle(b"answered")
        assert [(await peer.response(number))[0] for number in (1, 3)] == [prefixed(b"answered")] * 2
        await draining
        assert await peer.reader.read() == b""
        assert [call.number for call in echo.held] == [1, 3]


async def test_a_server_does_not_wait_for_clients_that_do_not_read_that_it_stops():
    limits = dataclasses.replace(LIMITS, goaway_s=0.05)
    async with serving(http2=limits, announce_s=0.05) as (server, echo), connected(server.port) as peer:
        await still_serves(peer, 1)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await eventually(lambda: len(server.connections) == 2, "a second client says nothing at all")
        await server.drain(60)
        assert (await peer.until(h2.GOAWAY))[2] == ANY_STREAM + U32(h2.NO_ERROR)
        assert (await peer.until(h2.GOAWAY))[2] == U32(1) + U32(h2.NO_ERROR)
        await server.close()
        assert await peer.reader.read() == await reader.read() == b""
        writer.close()
        assert not echo.held


async def test_a_client_that_arrives_as_the_server_stops_is_greeted_first():
    async with serving(announce_s=300.0) as (server, _), connected(server.port):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await eventually(lambda: len(server.connections) == 2, "it is accepted")
        draining = asyncio.create_task(server.drain(60))
        await asyncio.sleep(0)
        peer = Peer(reader, writer)
        peer.send(h2.PREFACE, h2.settings({}))
        assert (await peer.frame())[0] == h2.SETTINGS
        assert (await peer.until(h2.GOAWAY))[2] == ANY_STREAM + U32(h2.NO_ERROR)
        peer.ask(1, b"on its way")
        assert (await peer.response(1))[0] == prefixed(b"on its way")
        writer.close()
        draining.cancel()


# --- trouble, beyond the rules of test_rfc9113 ------------------------------------------------------------------------


async def test_who_sends_more_than_a_window_is_hung_up_on():
    async with serving(message_bytes=1 << 24, most_bytes=1 << 26) as (server, _), connected(server.port) as peer:
        peer.send(peer.head(1, fields=to("/streams")))
        await eventually(lambda: server.streams == 1, "it is open")
        (connection,) = server.connections
        connection.streams[1].held = True
        # A held stream's client gets no room, so this is all that it may send.
        part = h2.frame(h2.DATA, 0, 1, prefixed(bytes(1 << 23))[: 1 << 14])
        peer.send(part * (LIMITS.stream_window_bytes >> 14))
        await eventually(lambda: server.reading > LIMITS.stream_window_bytes - (1 << 14), "all of it is there")
        peer.send(h2.frame(h2.DATA, 0, 1, b"x"))
        assert (await peer.ended())[0] == h2.FLOW_CONTROL_ERROR
        await eventually(lambda: server.streams == server.reading == 0, "nothing is left of it")


async def test_what_comes_for_a_stream_that_was_answered_is_ignored():
    async with serving() as (server, _), connected(server.port) as peer:
        peer.send(peer.head(1, fields=to("/nothing")))
        _, fields = await peer.response(1)
        assert fields[b"grpc-status"] == b"12"
        # The client learns that the rest is of no use, and may have sent some of it.
        assert await peer.until(h2.RST_STREAM) == (0, 1, U32(h2.NO_ERROR))
        peer.send(
            h2.frame(h2.DATA, 0, 1, bytes(1000)),
            h2.window_update(1, 5),
            peer.head(1, h2.END_HEADERS | h2.END_STREAM, [("x", "y")]),
            h2.rst_stream(1, h2.CANCEL),
        )
        await still_serves(peer, 3)


async def test_a_client_that_is_gone_is_noticed_by_its_silence():
    limits = Http2Limits(keepalive_s=0.5, keepalive_timeout_s=1.0)
    async with serving(http2=limits) as (server, echo), connected(server.port) as peer:
        peer.ask(1, b"x", to("/hold"))
        flags, _, payload = await peer.until(h2.PING)
        assert not flags
        peer.send(h2.frame(h2.PING, h2.ACK, 0, payload))
        assert not (await peer.until(h2.PING))[0]
        # This one is not answered.
        await eventually(lambda: not server.connections, "it is given up")
        assert (echo.gone, server.streams) == (echo.held, 0)


async def test_greetings_and_heads_that_do_not_end_are_given_up():
    async with (
        serving(http2=Http2Limits(handshake_s=0.5)) as (server, _),
        connected(server.port) as good,
        connected(server.port) as half,
    ):
        _, silent = await asyncio.open_connection("127.0.0.1", server.port)
        silent.write(h2.PREFACE[:5])
        half.send(h2.frame(h2.HEADERS, 0, 1, half.encoder.encode(HEAD)))
        assert (await half.ended())[0] == h2.ENHANCE_YOUR_CALM
        await eventually(lambda: len(server.connections) == 1, "only the one that was greeted is left")
        await still_serves(good, 1)
        silent.close()
