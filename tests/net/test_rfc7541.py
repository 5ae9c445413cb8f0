"""Header compression by the sections of RFC 7541, as far as they bind a decoder."""

from __future__ import annotations

import pytest

from workers.net.http2 import frames
from workers.net.http2.frames import Http2Error
from workers.net.http2.headers import HeaderDecoder, leaves_table
from workers.net.limits import Http2Limits

FIELDS = {b":method": b"POST", b":scheme": b"http", b":path": b"/p"}
# 64 bytes of table each: 32 and the lengths of name and value
ENTRY = b"\x40\x04name\x1c" + b"v" * 28


def decode(*blocks: bytes) -> list[dict[bytes, bytes]]:
    """The fields of each block, decoded twice where that must not matter."""
    decoder, found = HeaderDecoder(Http2Limits()), []
    for block in blocks:
        found.append(decoder.decode(block).fields)
        if leaves_table(block):
            assert decoder.decode(block).fields == found[-1]
    return found


def path(*pieces: bytes) -> bytes:
    return b"\x83\x86\x04\x02/p" + b"".join(pieces)


@pytest.mark.parametrize(
    ("block", "more"),
    [
        pytest.param(path(b"\x90"), {b"accept-encoding": b"gzip, deflate"}, id="2.3.1 the static table"),
        pytest.param(path(ENTRY, b"\xbe"), {b"name": b"v" * 28 + b"," + b"v" * 28}, id="2.3.3 the latest entry is 62"),
        pytest.param(
            path(b"\x00\x04name\x7f\x00" + b"v" * 127), {b"name": b"v" * 127}, id="5.1 an integer of a full prefix"
        ),
        pytest.param(
            path(b"\x00\x04name\x7f\x9a\x0a" + b"v" * 1433), {b"name": b"v" * 1433}, id="5.1 an integer of three bytes"
        ),
        pytest.param(
            path(b"\x00\x04name\x7f\x80\x80\x00" + b"v" * 127),
            {b"name": b"v" * 127},
            id="5.1 an integer with zeros in front",
        ),
        pytest.param(path(b"\x00\x83\xa8\x74\x97\x00"), {b"name": b""}, id="5.2 a name in Huffman code"),
        pytest.param(path(b"\x40\x04name\x01v"), {b"name": b"v"}, id="6.2.1 with incremental indexing"),
        pytest.param(path(b"\x5a\x01v"), {b"content-encoding": b"v"}, id="6.2.1 with an indexed name"),
        pytest.param(path(b"\x00\x04name\x01v"), {b"name": b"v"}, id="6.2.2 without indexing"),
        pytest.param(path(b"\x0f\x0b\x01v"), {b"content-encoding": b"v"}, id="6.2.2 with an indexed name"),
        pytest.param(path(b"\x10\x04name\x01v"), {b"name": b"v"}, id="6.2.3 never indexed"),
        pytest.param(path(b"\x1f\x0b\x01v"), {b"content-encoding": b"v"}, id="6.2.3 with an indexed name"),
        pytest.param(b"\x20" + path(), {}, id="6.3 a table of no bytes"),
        pytest.param(
            b"\x20\x3f\xe1\x1f" + path(ENTRY, b"\xbe"),
            {b"name": b"v" * 28 + b"," + b"v" * 28},
            id="4.2 two changes of size",
        ),
    ],
)
def test_section_is_understood(block, more):
    assert decode(block) == [FIELDS | more]


@pytest.mark.parametrize(
    "blocks",
    [
        pytest.param([path(b"\x80")], id="2.3.3 index 0"),
        pytest.param([path(b"\xbe")], id="2.3.3 an index behind the tables"),
        pytest.param([path(b"\x7f\x00\x01v")], id="2.3.3 a name's index behind the tables"),
        pytest.param([path(b"\xff" + b"\xff" * 30 + b"\x01")], id="5.1 an integer of many bytes"),
        pytest.param([path(b"\xff\x80")], id="5.1 an integer that is cut off"),
        pytest.param([path(b"\x00\x04na")], id="5.2 a name that is cut off"),
        pytest.param([path(b"\x00\x04name\x09v")], id="5.2 a value that is cut off"),
        pytest.param([path(b"\x00\x04name\x84\xff\xff\xff\xff")], id="5.2 the end-of-string symbol"),
        pytest.param([path(b"\x00\x04name\x82\x1f\xff")], id="5.2 padding of more than 7 bits"),
        pytest.param([path(b"\x00\x04name\x81\x18")], id="5.2 padding that is not ones"),
        pytest.param([path(b"\x20")], id="4.2 a change of size behind a field"),
        pytest.param([b"\x3f\xe2\x1f" + path()], id="6.3 a size beyond SETTINGS_HEADER_TABLE_SIZE"),
        pytest.param([path(ENTRY), b"\x20" + path(b"\xbe")], id="4.3 an entry that a change of size evicted"),
        pytest.param([path(ENTRY * 65), path(b"\xff\x00")], id="4.4 an entry that others evicted"),
        pytest.param(
            [path(ENTRY), path(b"\x40\x04name\x7f\xa1\x1f" + b"v" * 4128, b"\xbe")],
            id="4.4 a field larger than the table empties it",
        ),
    ],
)
def test_section_is_a_compression_error(blocks):
    *before, last = blocks
    decoder = HeaderDecoder(Http2Limits())
    for block in before:
        decoder.decode(block)
    with pytest.raises(Http2Error) as caught:
        decoder.decode(last)
    assert caught.value.code == frames.COMPRESSION_ERROR


def test_section_2_2_a_block_means_what_the_table_says_when_it_comes():
    again = path(b"\xbe")
    found = decode(path(b"\x40\x01a\x01b"), again, again, path(b"\x40\x01c\x01d"), again)
    assert [one.get(b"a") for one in found] == [b"b", b"b", b"b", None, None]
    assert found[-1] == FIELDS | {b"c": b"d"}
