"""Request headers of HTTP/2, decoded and remembered by their blocks."""

from __future__ import annotations

import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.net.http2.headers import HeaderDecoder, MalformedHeaders, leaves_table
from workers.net.limits import Http2Limits

from .http2_client import HEAD

LIMITS = Http2Limits()
FIELDS = st.lists(
    st.tuples(
        st.sampled_from([b"authorization", b"grpc-timeout", b"x-trace", b"user-agent"]),
        st.sampled_from([b"", b"1", b"Bearer abc", b"x" * 300])
        | st.from_regex(rb"([!-~\x80-\xff]([ -~\x80-\xff]{0,6}[!-~\x80-\xff])?)?", fullmatch=True),
        st.booleans(),
    ),
    max_size=6,
)


@settings(deadline=None)
@given(st.lists(st.tuples(FIELDS, st.sampled_from([None, 0, 100, 4096]), st.booleans()), max_size=12))
def test_heads_mean_the_same_whether_or_not_they_are_remembered(requests):
    encoder, plain, heads = hpack.Encoder(), hpack.Decoder(), HeaderDecoder(LIMITS)
    start = [(b":method", b"POST", False), (b":scheme", b"http", False), (b":path", b"/p", False)]
    for fields, size, huffman in requests:
        if size is not None:
            encoder.header_table_size = size
        for _ in range(2):
            block = encoder.encode(start + fields, huffman=huffman)
            expected: dict[bytes, bytes] = {}
            for name, value in plain.decode(block, raw=True):
                expected[name] = expected[name] + b"," + value if name in expected else value
            assert heads.decode(block).fields == expected


def test_only_blocks_that_leave_the_table_alone_are_taken_for_such():
    encoder = hpack.Encoder()
    first = encoder.encode(HEAD)
    again = encoder.encode(HEAD)
    assert (leaves_table(first), leaves_table(again)) == (False, True)
    assert leaves_table(encoder.encode([("authorization", "secret", True)]))
    assert not leaves_table(again[:-1] + b"\xff")
    assert not leaves_table(b"\x00\x03ab")
    assert not leaves_table(b"\x20" + again)


def test_a_head_that_is_malformed_stays_so():
    heads, block = HeaderDecoder(LIMITS), b"\x83\x86"
    for _ in range(2):
        with pytest.raises(MalformedHeaders, match=":path"):
            heads.decode(block)
