"""Request headers of HTTP/2, decoded and remembered by their blocks."""

from __future__ import annotations

import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.net.http2.headers import HeaderDecoder, MalformedHeaders
from workers.net.limits import Http2Limits

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
            headers = heads.decode(block)
            assert headers.fields == expected
            heads.remember(headers)


def test_a_block_means_what_the_table_says_when_it_comes():
    def path(*pieces: bytes) -> bytes:
        return b"\x83\x86\x04\x02/p" + b"".join(pieces)

    # 64 bytes of table each, of which it has 4,096: another entry that is like the latest evicts the first.
    first, later = (b"\x40\x04name\x1c" + value * 28 for value in (b"a", b"b"))
    oldest = path(b"\xfd")
    heads = HeaderDecoder(LIMITS)

    def said(block: bytes) -> bytes:
        headers = heads.decode(block)
        heads.remember(headers)
        return headers.fields[b"name"][:1]

    heads.decode(path(first, later * 63))
    assert [said(oldest), said(oldest), len(heads._known)] == [b"a", b"a", 1]
    heads.decode(path(later))
    assert [said(oldest), said(oldest), len(heads._known)] == [b"b", b"b", 1]
    heads.decode(b"\x20" + path())
    assert not heads._known


def test_a_head_that_is_malformed_stays_so():
    heads, block = HeaderDecoder(LIMITS), b"\x83\x86"
    for _ in range(2):
        with pytest.raises(MalformedHeaders, match=":path"):
            heads.decode(block)
