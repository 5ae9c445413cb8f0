"""Calls over HTTP/2: messages however they are cut up, and headers."""

from __future__ import annotations

import gzip
import zlib

import grpc
import grpc.aio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.net.grpc import Admitted, Code, MessageParser, StatusError, parse_timeout
from workers.net.grpc.status import invalid
from workers.net.limits import DIRECT_READ_BYTES, Rate

from . import wire as h2
from .http2_client import CODE, connected, prefixed, serving, status, to

RATE = Rate()


# --- messages ---------------------------------------------------------------------------------------------------------

BODIES = st.lists(
    st.tuples(
        st.booleans(),
        st.integers(0, 40) | st.sampled_from([DIRECT_READ_BYTES - 6, DIRECT_READ_BYTES + 1, 2 * DIRECT_READ_BYTES]),
    ),
    max_size=6,
)


@settings(deadline=None)
@given(BODIES, st.lists(st.integers(1, 2 * DIRECT_READ_BYTES), max_size=40))
def test_messages_are_the_same_however_they_are_cut_up(bodies, sizes):
    sent = [(flag, bytes([place % 251]) * size) for place, (flag, size) in enumerate(bodies)]
    stream = b"".join(prefixed(body, flag) for flag, body in sent)
    messages, found = MessageParser(4 * DIRECT_READ_BYTES, RATE), []
    for size in [*sizes, len(stream) + 1]:
        piece, stream = stream[:size], stream[size:]
        found += messages.feed(piece)
    assert [(flag, bytes(body)) for flag, body in found] == sent
    assert messages.partial == 0


@pytest.mark.parametrize(
    ("data", "words", "too_large"),
    [
        (b"\x02\0\0\0\0", "its first byte must be 0, or 1", False),
        (prefixed(b"ok") + b"\xff\0\0\0\0", "its first byte must be 0, or 1", False),
        (b"\0\0\0\0\x65", "has 101 bytes, which is larger than max (100 bytes)", True),
        (b"\1\xff\xff\xff\xff", "larger than max", True),
    ],
)
def test_what_is_no_message_is_refused_before_it_is_there(data, words, too_large):
    with pytest.raises(StatusError) as caught:
        MessageParser(100, RATE).feed(data)
    assert words in str(caught.value)
    assert caught.value.code is (Code.RESOURCE_EXHAUSTED if too_large else Code.INVALID_ARGUMENT)


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ([b""], "message: missing; one is needed"),
        ([b"\0\0\0"], "message: cut off"),
        ([prefixed(b"abc")[:-1]], "message: cut off"),
        ([prefixed(b"a"), prefixed(b"b")], "message: one is taken, two came"),
        ([prefixed(b"a") + prefixed(b"b")], "message: one is taken, two came"),
        ([b"\x07" + prefixed(b"")], "message: its first byte must be"),
        ([prefixed(b"a", 1)], "message: is compressed, and grpc-encoding is missing"),
    ],
)
async def test_a_call_that_takes_one_message_says_what_is_wrong_with_it(frames, words):
    async with serving() as (server, echo), connected(server.port) as peer:
        peer.send(peer.head(1), *[h2.frame(h2.DATA, 0, 1, frame) for frame in frames])
        peer.send(h2.frame(h2.DATA, h2.END_STREAM, 1))
        code, said = await status(peer, 1)
        assert (code, words in said) == (CODE.INVALID_ARGUMENT, True), said
        peer.ask(3, b"next")
        assert (await peer.response(3))[0] == prefixed(b"next")
        assert (echo.got, server.reading, len(echo.refusals)) == ([b"next"], 0, 1)


@pytest.mark.parametrize(
    ("encoding", "packed", "code"),
    [
        ("gzip", gzip.compress(b"a" * 1000, mtime=0), None),
        ("deflate", zlib.compress(b"a" * 1000), None),
        ("gzip", gzip.compress(bytes(5000), mtime=0), CODE.RESOURCE_EXHAUSTED),
        ("gzip", b"not at all", CODE.INVALID_ARGUMENT),
    ],
)
async def test_compressed_messages_are_taken_up_to_the_same_size(encoding, packed, code):
    async with serving(message_bytes=4000) as (server, _), connected(server.port) as peer:
        peer.send(peer.head(1, fields=to("/echo", ("grpc-encoding", encoding))))
        peer.send(h2.frame(h2.DATA, h2.END_STREAM, 1, prefixed(packed, 1)))
        data, fields = await peer.response(1)
        if code is None:
            assert (data, fields[b"grpc-status"]) == (prefixed(b"a" * 1000), b"0")
        else:
            assert fields[b"grpc-status"] == b"%d" % code.value[0]


# --- heads ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(b"1S", 1.0), (b"250m", 0.25), (b"99999999u", 99.999999), (b"0n", 0.0), (b"2H", 7200.0), (b"3M", 180.0)],
)
def test_deadlines_have_units(value, seconds):
    assert parse_timeout(value) == pytest.approx(seconds)


@pytest.mark.parametrize("value", [b"", b"S", b"1", b"1s", b"-1S", b"1.5S", b"123456789S", b"\xb2S"])
def test_what_is_no_deadline_is_refused(value):
    with pytest.raises(StatusError, match="grpc-timeout: must be up to 8 digits"):
        parse_timeout(value)


async def test_what_was_remembered_of_a_head_ends_with_what_it_was_judged_by():
    async with serving() as (server, echo), connected(server.port) as peer:
        for number in (1, 3):
            peer.ask(number, b"x")
            assert (await peer.response(number))[0] == prefixed(b"x")
        echo.admit, echo.key = (lambda head: Admitted(echo.key, None, invalid("no more"))), object()
        peer.ask(5, b"x")
        assert await status(peer, 5) == (CODE.INVALID_ARGUMENT, "no more")


async def test_any_text_of_a_status_comes_through():
    text = "at 100 %, “quoted”\n\x00 \ud800 end"
    async with serving() as (server, echo), grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        echo.admit = lambda head: Admitted(echo.key, None, invalid(text))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/echo")(b"")
        assert caught.value.details() == text.replace("\ud800", "?")
