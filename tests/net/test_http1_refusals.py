"""HTTP/1.1 requests that a server does not have to take."""

from __future__ import annotations

import pytest

from .http1_client import MIB, connected, get, serving

POST = b"POST /a HTTP/1.1\r\nhost: a\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
#: a request that must not be answered: it stands within another one
WITHIN = b"GET /within HTTP/1.1\r\nhost: a\r\n\r\n"

MALFORMED = {
    "both a length and chunks": POST + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + WITHIN,
    "both chunks and a length": POST + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n" + WITHIN,
    "two lengths that differ": POST + b"content-length: 4\r\ncontent-length: 9\r\n\r\n{}{}" + WITHIN,
    "a list of lengths": POST + b"content-length: 4, 4\r\n\r\n{}{}" + WITHIN,
    "a length with a sign": POST + b"content-length: +4\r\n\r\n{}{}" + WITHIN,
    "a negative length": POST + b"content-length: -1\r\n\r\n{}{}" + WITHIN,
    "no number in the length": POST + b"content-length: \r\n\r\n" + WITHIN,
    "a length beyond any number": POST + b"content-length: 99999999999999999999999\r\n\r\n" + WITHIN,
    "an encoding that hides the length": POST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n" + WITHIN,
    "chunks not at the end": POST + b"transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n" + WITHIN,
    "a chunk whose size is no number": CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n" + WITHIN,
    "a chunk of a negative size": CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n" + WITHIN,
    "a chunk's size with a prefix": CHUNKED + b"0x2\r\n{}\r\n0\r\n\r\n" + WITHIN,
    "a chunk's size beyond any number": CHUNKED + b"ffffffffffffffffff\r\n{}\r\n0\r\n\r\n" + WITHIN,
    "a chunk that is longer than it says": CHUNKED + b"1\r\n{}\r\n0\r\n\r\n" + WITHIN,
    "a chunk without its end": CHUNKED + b"2\r\n{}0\r\n\r\n" + WITHIN,
    "lines without carriage returns in chunks": CHUNKED + b"2\n{}\n0\n\n" + WITHIN,
    "lines without carriage returns": b"GET /a HTTP/1.1\nhost: a\n\n",
    "a space before the colon": POST + b"content-length : 4\r\n\r\n{}{}" + WITHIN,
    "a header without a colon": POST + b"content-length 4\r\n\r\n{}{}" + WITHIN,
    "a header that goes on in the next line": POST + b"content-length: 2\r\n 2\r\n\r\n" + WITHIN,
    "a header within a header": POST + b"x: 1\rcontent-length: 4\r\n\r\n{}{}" + WITHIN,
    "a zero byte": POST + b"x: a\0b\r\n\r\n" + WITHIN,
    "a name that is not ASCII": POST + b"x\xff: a\r\n\r\n" + WITHIN,
    "a control character in the path": b"GET /a\x01b HTTP/1.1\r\nhost: a\r\n\r\n",
    "HTTP/2 that nobody agreed on": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 64,
    "TLS": bytes.fromhex("16030102000100") + b"\x01\xfc\x03\x03" + b"\0" * 64,
}
REFUSED = {
    **{kind: (data, 400, b"not a valid HTTP request") for kind, data in MALFORMED.items()},
    "an encoding that hides the length": (MALFORMED["an encoding that hides the length"], 501, b"only 'chunked' is"),
    "several encodings": (POST + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501, b"transfer-encoding:"),
    "no host": (b"GET /a HTTP/1.1\r\n\r\n", 400, b"host: missing"),
    "two hosts": (b"GET /a HTTP/1.1\r\nhost: a\r\nHost: b\r\n\r\n", 400, b"host: at most one"),
    "HTTP/2.0": (b"GET /a HTTP/2.0\r\nhost: a\r\n\r\n", 505, b"2.0"),
    "HTTP/0.9": (b"GET /a HTTP/0.9\r\nhost: a\r\n\r\n", 505, b"0.9"),
    "HTTP/7.3": (b"GET /a HTTP/7.3\r\nhost: a\r\n\r\n", 505, b"version"),
    "a path too long": (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n", 431, b"at most 16384"),
    "a path without an end": (b"GET /" + b"x" * 300_000, 431, b"at most 16384"),
    "a header too long": (b"GET /a HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 16384 + b"\r\n\r\n", 431, b"at most 16384"),
    "too many headers": (POST + b"x: y\r\n" * 100 + b"\r\n", 431, b"headers: at most 100 fields"),
    "trailers too long": (CHUNKED + b"2\r\n{}\r\n0\r\nh: " + b"x" * 70_000 + b"\r\n\r\n", 431, b"at most 16384"),
    "a trailer without an end": (CHUNKED + b"0\r\nx: " + b"a" * MIB, 431, b"trailers: at most 16384"),
    "a chunk extension without an end": (CHUNKED + b"5;x=" + b"a" * MIB, 431, b"chunk extensions"),
    "extensions of many chunks": (
        CHUNKED + (b"1;" + b"e" * 12000 + b"\r\nx\r\n") * 3,
        400,
        b"chunks: at most 16 bytes",
    ),
    "a chunk too large": (CHUNKED + b"fffffff\r\n" + b"x" * (2 * MIB), 413, b"at most 1048576"),
    "a body in many chunks": (CHUNKED + (b"10000\r\n" + b"x" * 0x10000 + b"\r\n") * 17, 413, b"at most 1048576"),
    "a body too large": (POST + b"content-length: 1048577\r\n\r\n", 413, b"at most 1048576"),
    "a length of many digits": (POST + b"content-length: 1234567890123456\r\n\r\n", 413, b"at most 1048576"),
}


@pytest.mark.parametrize("kind", REFUSED)
async def test_it_is_refused_once_and_again_and_its_connection_is_closed(kind):
    data, status, says = REFUSED[kind]
    async with serving() as (server, _):
        for _ in range(2):
            async with connected(server) as browser:
                browser.send(data)
                found, head, body = await browser.answer()
                assert (found, says in body, b"connection: close" in head) == (status, True, True), body
                assert await browser.closed()
        assert (server.buffered_bytes, server.known_heads) == (0, {})


async def test_chunks_of_one_byte_and_zeros_before_a_length_are_no_fault():
    async with serving() as (server, _), connected(server) as browser:
        browser.send(CHUNKED + b"1\r\nx\r\n" * 9000 + b"0\r\n\r\n")
        assert (await browser.answer())[0] == 200
        browser.send(b"POST /b HTTP/1.1\r\nhost: a\r\ncontent-length: " + b"0" * 40 + b"3\r\n\r\nabc")
        assert (await browser.answer())[2] == b"/b"


async def test_http_1_0_is_told_each_time_whether_its_connection_is_kept():
    begun = b"POST /a HTTP/1.0\r\nconnection: keep-alive\r\n"
    async with serving() as (server, _), connected(server) as browser:
        for _ in range(3):
            browser.send(begun + b"\r\n")
            status, head, _ = await browser.answer()
            assert (status, b"connection: keep-alive" in head) == (200, True)
        # A proxy that forwarded them may not have understood chunks.
        browser.send(begun + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n")
        status, head, _ = await browser.answer()
        assert (status, b"connection: close" in head) == (200, True)
        assert await browser.closed()


async def test_a_head_that_ends_elsewhere_for_the_parser_is_not_remembered():
    odd = get("/a").replace(b"host: a\r\n", b"host: a\nx: y\r\n")
    async with serving() as (server, _):
        answers = set()
        for _ in range(2):
            async with connected(server) as browser:
                browser.send(odd)
                answers.add((await browser.answer())[0])
        assert len(answers) == 1 and not server.known_heads


@pytest.mark.parametrize("target", [b"http://evil.example/a?b=c", b"HTTPS://evil.example:99/a", b"/a"])
async def test_a_whole_address_is_served_as_its_path(target):
    async with serving() as (server, _), connected(server) as browser:
        browser.send(b"GET " + target + b" HTTP/1.1\r\nhost: a\r\n\r\n")
        assert (await browser.answer())[2] == b"/a"
