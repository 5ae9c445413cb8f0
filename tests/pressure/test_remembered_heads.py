"""A head that was seen before goes around the parser.

The bytes that follow mean what they would have meant without.
"""

from __future__ import annotations

import asyncio
import hashlib
import time

import msgspec
import numpy as np
import pytest

from tests.gateway.conftest import application, config, free_port, plan
from workers.gateway.gateway import Gateway
from workers.gateway.options import GatewayOptions

from .conftest import COLUMNS
from .wire import Client, post, request

ONE = np.array([[1.0, 2.0, 3.0, 4.0]], np.float32)
WAIT_S = 0.02


def numbers_of(seed: int, rows: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, COLUMNS), dtype=np.float32)


def negated(content: bytes, x: np.ndarray) -> bool:
    return content == (-x).tobytes()


def test_a_request_cut_anywhere_is_answered_as_a_whole_one(served):
    whole = request("app", ONE)
    with Client(served.gateway.port) as client:
        client.send(whole)
        expected = client.answer()[2]
        head = whole.index(b"\r\n\r\n") + 4
        for cut in (1, 20, head - 3, head - 1, head, head + 1, len(whole) - 1):
            client.send(whole[:cut])
            time.sleep(WAIT_S)
            client.send(whole[cut:])
            status, _, content = client.answer()
            assert (status, content) == (200, expected), cut


@pytest.mark.parametrize("rows", [1, 2, 40])
def test_a_large_body_arrives_whole_each_time_however_it_is_cut(served, rows):
    with served.bystanders(), Client(served.gateway.port) as client:
        for seed, pieces in enumerate((1, 1, 2, 3, 7)):
            x = numbers_of(seed, rows)
            whole = request("large", x)
            size = -(-len(whole) // pieces)
            for start in range(0, len(whole), size):
                client.send(whole[start : start + size])
                if pieces > 1:
                    time.sleep(WAIT_S)
            status, _, content = client.answer()
            assert status == 200 and negated(content, x)


def test_a_client_that_vanishes_within_a_large_body_leaves_nothing(served):
    whole = request("large", numbers_of(1, 40))
    with Client(served.gateway.port) as client:
        client.send(whole)
        client.answer()
    with served.bystanders():
        for reset in (True, False):
            client = Client(served.gateway.port)
            client.send(whole[: len(whole) // 2])
            time.sleep(WAIT_S)
            client.vanish(reset)


@pytest.mark.parametrize("x", [ONE, np.zeros((1, 1), np.float32)], ids=["answered", "refused"])
def test_http_1_0_is_notified_each_time_whether_its_connection_is_kept(served, x):
    closing = request("app", x).replace(b"HTTP/1.1\r\n", b"HTTP/1.0\r\n", 1)
    kept = closing.replace(b"host: a\r\n", b"host: a\r\nConnection: keep-alive\r\n", 1)
    with Client(served.gateway.port) as client:
        for data, said in ((kept, "keep-alive"),) * 3 + ((closing, "close"),):
            client.send(data)
            status, headers, _ = client.answer()
            assert (status, headers["connection"]) == (200 if x is ONE else 400, said)
        assert client.rest() == b""


async def test_a_key_that_is_taken_back_and_an_application_that_is_gone_are_so_on_open_connections(tmp_path):
    """Nothing is warm, so what is admitted gets a 503, and what is not says why."""
    port = free_port()
    gateway = Gateway(GatewayOptions("g", "127.0.0.1", port, "127.0.0.1", free_port(), tmp_path / "config"))
    known = config(plan(1, {}, {}), [application("numbers"), application("words")])
    gateway.configure(known)
    await gateway.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        asked = request("numbers", ONE)
        another = hashlib.sha256(b"another key").hexdigest()

        async def status() -> int:
            writer.write(asked)
            return int((await _answer(reader)).split()[1])

        assert [await status() for _ in range(3)] == [503, 503, 503]
        gateway.configure(config(plan(2, {}, {}), [application("words")]))
        assert [await status() for _ in range(2)] == [404, 404]
        gateway.configure(config(plan(3, {}, {}), [application("numbers")]))
        assert await status() == 503
        gateway.configure(msgspec.structs.replace(known, key_hashes=(another,)))
        assert await status() == 401
    finally:
        writer.close()
        await gateway.stop(0.1)


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
    await reader.readexactly(int(length.split(b":")[1]))
    return head


def test_a_head_with_a_lone_newline_is_no_other_head_than_the_parser_takes_it_for(served):
    path = "/v2/models/app/infer"
    odd = post(path, b"").replace(b"host: a\r\n", b"host: a\nx: y\r\n")
    with Client(served.gateway.port) as client:
        client.send(odd)
        first = client.answer()[0]
    with Client(served.gateway.port) as client:
        client.send(odd)
        assert client.answer()[0] == first
