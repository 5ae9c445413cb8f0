"""Clients that others wrote: hyper-h2, nghttp2's tools, gRPC's C core and grpclib."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil

import grpc
import grpc.aio
import pytest
from grpclib.client import Channel, StreamStreamMethod, UnaryUnaryMethod
from grpclib.exceptions import GRPCError
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, ResponseReceived, StreamEnded, StreamReset, TrailersReceived
from h2.settings import SettingCodes, Settings
from hyperframe.frame import DataFrame, Frame, GoAwayFrame, RstStreamFrame
from hypothesis import given
from hypothesis import strategies as st

from . import wire
from .http2_client import Unplugged, eventually, prefixed, serving, to

# --- hyper-h2 as oracle: it raises where what we write is not HTTP/2 --------------------------------------------------


class Oracle(Unplugged):
    """A connection of hyper-h2's to a server of ours, without sockets."""

    def __init__(self, windows: int):
        super().__init__(message_bytes=300_000, buffered_bytes=10_000_000)
        self.client = H2Connection(H2Configuration(client_side=True))
        self.client.local_settings = Settings(True, {SettingCodes.INITIAL_WINDOW_SIZE: windows})
        self.client.initiate_connection()
        self.data: dict[int, bytes] = {}
        self.fields: dict[int, dict[bytes, bytes]] = {}
        self.ended: set[int] = set()
        self.resets: dict[int, int] = {}

    def exchange(self) -> None:
        """Bytes in both directions, until nobody has any."""
        while True:
            sent = self.client.data_to_send()
            if sent and not self.transport.closed:
                self.connection.data_received(sent)
            got = bytes(self.transport.out)
            self.transport.out.clear()
            if not got and not sent:
                return
            for event in self.client.receive_data(got):
                self.note(event)

    def note(self, event) -> None:
        assert not isinstance(event, ConnectionTerminated), event
        if isinstance(event, DataReceived):
            self.data[event.stream_id] = self.data.get(event.stream_id, b"") + event.data
            # It opens its windows again late and in pieces.
            self.client.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, ResponseReceived | TrailersReceived):
            self.fields.setdefault(event.stream_id, {}).update(event.headers)
        elif isinstance(event, StreamEnded):
            self.ended.add(event.stream_id)
        elif isinstance(event, StreamReset):
            self.resets[event.stream_id] = event.error_code


BODIES = st.sampled_from([0, 1, 500, 5000, 70_000])
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "hold", "answer", "cancel", "ping", "window", "nothing"]), BODIES, st.booleans()
    ),
    min_size=1,
    max_size=25,
)


@given(ACTIONS, st.sampled_from([0, 1000, 65_535, 1 << 20]))
def test_what_the_server_writes_is_http2_to_hyper_h2(actions, windows):
    async def main() -> None:
        oracle = Oracle(windows)
        client, expected, cancelled = oracle.client, {}, set()
        for action, size, padded in actions:
            if action in ("ask", "hold", "nothing"):
                number = client.get_next_available_stream_id()
                path = {"ask": "/echo", "hold": "/hold", "nothing": "/missing"}[action]
                client.send_headers(number, to(path))
                oracle.exchange()
                if action == "nothing":
                    expected[number] = None
                    continue
                body = prefixed(bytes([number % 251]) * size)
                while len(body) > 10_000:
                    client.send_data(number, body[:10_000], pad_length=7 if padded else None)
                    body = body[10_000:]
                    oracle.exchange()
                client.send_data(number, body, end_stream=True)
                expected[number] = prefixed(bytes([number % 251]) * size)
            elif action == "answer" and oracle.echo.held:
                call = oracle.echo.held.pop()
                call.settle(bytes([call.number % 251]) * (len(expected[call.number]) - 5))
            elif action == "cancel" and oracle.echo.held:
                call = oracle.echo.held.pop(0)
                client.reset_stream(call.number, wire.CANCEL)
                cancelled.add(call.number)
            elif action == "ping":
                client.ping(b"12345678")
            elif action == "window":
                # A window of few bytes would take a flood of updates.
                client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: size if size > 1 else 0})
            oracle.exchange()
        client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1 << 20})
        oracle.exchange()
        for call in oracle.echo.held:
            call.settle(bytes([call.number % 251]) * (len(expected[call.number]) - 5))
        oracle.exchange()
        for number, body in expected.items():
            if number in cancelled:
                continue
            assert number in oracle.ended
            if body is None:
                assert oracle.fields[number][b"grpc-status"] == b"12"
            else:
                assert (oracle.data[number], oracle.fields[number][b"grpc-status"]) == (body, b"0")
        assert oracle.left == (0, 0, 0)
        oracle.connection.connection_lost(None)

    asyncio.run(main())


# --- hyperframe as hostile client: any frames end in an answer, a reset or a reason -----------------------------------


@given(
    st.lists(
        st.tuples(st.integers(0, 11), st.integers(0, 255), st.sampled_from([0, 1, 1, 2, 3, 5]), st.binary(max_size=24)),
        max_size=12,
    )
)
def test_hostile_frames_end_in_a_reason_and_never_in_a_fault(hostile):
    async def main() -> None:
        unplugged = Unplugged(message_bytes=1000, buffered_bytes=10_000)
        connection = unplugged.connection
        connection.data_received(wire.PREFACE + wire.settings({}))
        for kind, flags, number, payload in hostile:
            connection.data_received(wire.frame(kind, flags, number, payload))
        out, reasons = memoryview(bytes(unplugged.transport.out)), []
        while out:
            frame, length = Frame.parse_frame_header(out[:9], strict=True)
            frame.parse_body(out[9 : 9 + length])
            out = out[9 + length :]
            if isinstance(frame, GoAwayFrame | RstStreamFrame):
                reasons.append(frame.error_code)
            else:
                assert unplugged.echo.got or not isinstance(frame, DataFrame)
        assert wire.INTERNAL_ERROR not in reasons
        assert len([code for code in reasons if code]) <= 1 + len(hostile)
        connection.connection_lost(None)
        assert unplugged.left == (0, 0, 0)

    asyncio.run(main())


# --- gRPC's C core and grpclib ----------------------------------------------------------------------------------------


class Codec:
    __content_subtype__ = "proto"

    def encode(self, message, message_type) -> bytes:
        return message

    def decode(self, data: bytes, message_type) -> bytes:
        return data


@contextlib.asynccontextmanager
async def grpclib_to(port: int):
    channel = Channel("127.0.0.1", port, codec=Codec())
    try:
        yield channel
    finally:
        channel.close()


@pytest.mark.parametrize("size", [0, 1, 70_000, 900_000])
async def test_grpclib_is_answered(size):
    message = bytes(range(256)) * (size // 256) + bytes(size % 256)
    async with serving() as (server, _), grpclib_to(server.port) as channel:
        ask = UnaryUnaryMethod(channel, "/echo", bytes, bytes)
        assert await asyncio.gather(*[ask(message) for _ in range(4)]) == [message] * 4
        assert (server.reading, server.unsent) == (0, 0)


async def test_grpclib_reads_errors_and_its_deadline_and_cancels():
    async with serving() as (server, echo), grpclib_to(server.port) as channel:
        with pytest.raises(GRPCError) as caught:
            await UnaryUnaryMethod(channel, "/missing", bytes, bytes)(b"x")
        assert (caught.value.status.value, caught.value.message) == (12, "method: not known")
        with pytest.raises(asyncio.TimeoutError):
            await UnaryUnaryMethod(channel, "/hold", bytes, bytes)(b"x", timeout=5.0)
        await eventually(lambda: len(echo.gone) == 1, "the call was cancelled")
        # The client has spent a part of its time before.
        assert 0 < echo.held[0].left_s(echo.held[0].opened_at) <= 5.0
        assert server.streams == 0


async def test_grpclib_streams_in_both_directions():
    async with (
        serving() as (server, echo),
        grpclib_to(server.port) as channel,
        StreamStreamMethod(channel, "/streams", bytes, bytes).open() as stream,
    ):
        for place in range(20):
            await stream.send_message(b"%d" % place)
            await eventually(lambda place=place: len(echo.held) == place + 1, "it arrived")
            echo.held[-1].send(b"to %d" % place)
            assert await stream.recv_message() == b"to %d" % place
        await stream.end()
        assert await stream.recv_message() is None


async def test_the_c_core_is_answered_compressed_and_in_streams():
    async with (
        serving() as (server, echo),
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", compression=grpc.Compression.Gzip) as channel,
    ):
        ask = channel.unary_unary("/echo")
        assert await asyncio.gather(*[ask(b"x" * size) for size in (0, 1, 100_000)]) == [b"", b"x", b"x" * 100_000]
        stream = channel.stream_stream("/streams")()
        await stream.write(b"one")
        await eventually(lambda: echo.held, "it arrived")
        echo.held[0].send(b"two")
        assert await stream.read() == b"two"
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF


# --- nghttp2 ----------------------------------------------------------------------------------------------------------

needs_nghttp2 = pytest.mark.skipif(
    not shutil.which("h2load") and "CI" not in os.environ, reason="h2load and nghttp (nghttp2-client) are not installed"
)


async def output(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await asyncio.wait_for(process.communicate(), 300)
    assert process.returncode == 0, said.decode()
    return said.decode()


@needs_nghttp2
@pytest.mark.parametrize(("size", "more"), [(100, ()), (100, ("-w", "10", "-W", "16")), (50_000, ())])
async def test_h2load_gets_every_answer(tmp_path, size, more):
    (tmp_path / "body").write_bytes(prefixed(bytes(size)))
    count = 4000 if size < 1000 else 400
    async with serving(most_bytes=1 << 26) as (server, _):
        said = await output(
            *("h2load", "-n", str(count), "-c", "8", "-m", "32", "-d", str(tmp_path / "body")),
            *("-H", "content-type: application/grpc", "-H", "te: trailers", *more),
            f"http://127.0.0.1:{server.port}/echo",
        )
        assert f"{count} done, {count} succeeded, 0 failed, 0 errored, 0 timeout" in said
        assert f"{count} 2xx" in said
        await eventually(lambda: not server.connections, "h2load left")
        assert (server.streams, server.reading, server.unsent) == (0, 0, 0)


@needs_nghttp2
async def test_nghttp_sees_headers_data_and_trailers(tmp_path):
    (tmp_path / "body").write_bytes(prefixed(b"as it was sent"))
    async with serving() as (server, _):
        said = await output(
            *("nghttp", "-v", "--no-dep", "-d", str(tmp_path / "body"), "-H", "content-type: application/grpc"),
            *("-H", ":method: POST", "--trailer", "x-sum: 1", f"http://127.0.0.1:{server.port}/echo"),
        )
    plain = re.sub(r"\x1b\[[\d;]*m", "", said)
    for part in (":status: 200", "grpc-status: 0", "as it was sent", "recv SETTINGS frame", "ACK"):
        assert part in plain, plain
    assert "error_code" not in plain.replace("error_code=NO_ERROR", "")
