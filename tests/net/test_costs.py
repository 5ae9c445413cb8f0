"""Limits of refusals, remembered headers, heads, and idle connections."""

from __future__ import annotations

import asyncio

import hpack
import pytest

from workers.net.admission import Connections, RefusalBudget, peer_address
from workers.net.grpc import StatusError
from workers.net.grpc.status import Code
from workers.net.limits import Http2Limits, RefusalLimits

from . import http1_client as http1
from . import wire as h2
from .http2_client import HEAD, Peer, connected, eventually, prefixed, serving, to

#: no tokens come back while a test runs, however slow the machine
FEW = Http2Limits(refusals=RefusalLimits(burst=20, per_s=0.0))


def client_resets(peer: Peer, number: int) -> None:
    peer.send(peer.head(number, fields=to("/hold")), h2.rst_stream(number, h2.CANCEL))


def made_to_reset(peer: Peer, number: int) -> None:
    """A window update of 0 makes the server reset the stream ("MadeYouReset")."""
    peer.send(peer.head(number, fields=to("/hold")), h2.window_update(number, 0))


def malformed(peer: Peer, number: int) -> None:
    peer.send(peer.head(number, h2.END_HEADERS | h2.END_STREAM, [(":method", "POST"), ("Upper", "case")]))


def refused(peer: Peer, number: int) -> None:
    peer.send(peer.head(number, h2.END_HEADERS | h2.END_STREAM, to("/unknown")))


@pytest.mark.parametrize("request_it", [client_resets, made_to_reset, malformed, refused])
async def test_requests_that_are_reset_or_refused_end_the_connection_beyond_their_budget(request_it):
    async with serving(http2=FEW) as (server, _), connected(server.port) as peer:
        for place in range(20):
            request_it(peer, 2 * place + 1)
        peer.ask(41, b"still served")
        while (found := await peer.frame())[:1] != (h2.DATA,):
            assert found[0] != h2.GOAWAY
        assert found[2:] == (41, prefixed(b"still served"))
        # The answer has earned one more.
        request_it(peer, 43)
        request_it(peer, 45)
        code, why = await peer.ended()
        assert (code, why[:46]) == (h2.ENHANCE_YOUR_CALM, "at most 20 requests that are reset or refused,")
        await eventually(lambda: (server.streams, server.reading) == (0, 0), "nothing is left")


async def test_the_budget_comes_back_with_time_and_answers_but_never_exceeds_its_burst():
    budget = RefusalBudget(RefusalLimits(burst=3, per_s=2.0))
    start = budget._since
    assert [budget.spend(start, 0) for _ in range(4)] == [True, True, True, False]
    assert [budget.spend(start + 1.0, 0) for _ in range(2)] == [True, False]
    assert [budget.spend(start + 1.0, 5) for _ in range(4)] == [True, True, True, False]


async def test_a_header_list_has_limits_of_bytes_and_fields():
    async with serving() as (server, _), connected(server.port) as peer:
        peer.send(peer.head(1, fields=[*HEAD, *((f"x{i}", "") for i in range(100))]))
        _, stream, _ = await peer.until(h2.RST_STREAM)
        assert stream == 1
        peer.ask(3, b"goes on")
        assert (await peer.response(3))[0] == prefixed(b"goes on")
        peer.send(peer.head(5, fields=[*HEAD, ("x", "y" * 8192)]))
        assert (await peer.ended())[1] == "headers: at most 8192 bytes"


async def test_a_few_header_lists_of_accepted_requests_are_remembered():
    block = hpack.Encoder().encode(HEAD, huffman=False)
    literal = b"".join(b"\x00" + bytes([len(n)]) + n.encode() + bytes([len(v)]) + v.encode() for n, v in HEAD)
    assert len(literal) < 1024 < len(block) + 1024
    async with serving() as (server, _), connected(server.port) as peer:
        # One large entry of the table, to which each of many small blocks refers.
        peer.send(peer.head(1, h2.END_HEADERS | h2.END_STREAM, [*to("/unknown"), ("big", "y" * 3900)]))
        for place in range(1, 64):
            small = literal.replace(b"/echo", b"/nope") + b"\xbe" + bytes([0, 1, 120, 1, place + 32])
            peer.send(h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, 2 * place + 1, small))
        peer.ask(129, b"and now")
        while (await peer.frame())[:3:2] != (h2.DATA, 129):
            pass
        (connection,) = server.connections
        assert len(connection._decoder._known) <= 1
        for place in range(100):
            number = 131 + 2 * place
            peer.send(h2.frame(h2.HEADERS, h2.END_HEADERS, number, literal + bytes([0, 1, 120, 1, place + 32])))
            peer.send(h2.frame(h2.DATA, h2.END_STREAM, number, prefixed(b"")))
        while (await peer.frame())[:3:2] != (h2.DATA, 329):
            pass
        assert 1 <= len(connection._decoder._known) <= Http2Limits().known_blocks


async def test_a_stream_ends_once_its_client_may_no_longer_call():
    async with serving() as (server, echo), connected(server.port) as peer:
        peer.send(peer.head(1, fields=to("/streams")), h2.frame(h2.DATA, 0, 1, prefixed(b"first")))
        peer.send(peer.head(3, fields=to("/streams")), h2.frame(h2.DATA, 0, 3, prefixed(b"second")))
        await eventually(lambda: len(echo.held) == 2, "both are open")
        server.readmit()
        assert not echo.gone, "it still may"
        admit, echo.key = echo.admit, object()

        def deny_one(headers):
            admitted = admit(headers)
            if headers is echo.held[0].headers:
                return type(admitted)(echo.key, None, StatusError(Code.UNAUTHENTICATED, "no such key"))
            return admitted

        echo.admit = deny_one
        denied = echo.held[0]
        server.readmit()
        assert denied in echo.gone
        _, fields = await peer.response(denied.number)
        assert (fields[b"grpc-status"], fields[b"grpc-message"]) == (b"16", b"no such key")


# --- connections at their limit ---------------------------------------------------------------------------------------


class Idle:
    def __init__(self, touched: float, address: str = "", idle: bool = True):
        self.touched, self.address, self.idle = touched, address, idle
        self.evicted = False

    def evict_idle(self) -> None:
        self.evicted = True


def test_the_longest_idle_connections_of_one_address_make_room_for_its_next():
    connections = Connections(1000, 32)
    several = [Idle(float(place), "192.0.2.1") for place in range(32)]
    other = Idle(0.0, "192.0.2.2")
    for one in (*several, other):
        assert connections.open(one) is None
    assert connections.open(Idle(99.0, "192.0.2.1")) is None
    assert [one.evicted for one in several] == [True, True] + [False] * 30
    assert not other.evicted
    for one in several:
        connections.close(one)
    assert len(connections) == 2


def test_connections_that_are_at_work_are_not_closed_for_new_ones():
    connections = Connections(1000, 2)
    for place in range(2):
        assert connections.open(Idle(float(place), "192.0.2.1", idle=False)) is None
    assert connections.open(Idle(9.0, "192.0.2.1")) == "connections of one address: at most 2 at a time"
    assert connections.open(Idle(9.0, "192.0.2.2")) is None


async def test_clients_on_loopback_and_proxies_there_have_no_limit_of_their_address():
    async with http1.serving(address_connections=1) as (server, _):
        browsers = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(4)]
        for _, writer in browsers:
            writer.write(http1.get("/a"))
        for reader, writer in browsers:
            assert (await http1.Browser(reader, writer).answer())[0] == 200
            writer.close()


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        (("127.0.0.1", 1), ""),
        (("::1", 1, 0, 0), ""),
        (("::ffff:127.0.0.1", 1, 0, 0), ""),
        (("192.0.2.7", 1), "192.0.2.7"),
        (("::ffff:192.0.2.7", 1, 0, 0), "192.0.2.7"),
        (("2001:db8::1:2", 1, 0, 0), "2001:db8::/64"),
        (("fe80::1%eth0", 1, 0, 2), "fe80::/64"),
        ("/a/unix/socket", ""),
        (None, ""),
    ],
)
def test_addresses_are_counted_as_the_hosts_that_have_them(peer, address):
    class Transport:
        def get_extra_info(self, name: str):
            assert name == "peername"
            return peer

    assert peer_address(Transport()) == address


async def test_beyond_the_limit_the_longest_idle_connection_is_closed_and_the_new_one_served():
    async with (
        http1.serving(connections=3) as (server, held),
        http1.connected(server) as first,
        http1.connected(server) as second,
        http1.connected(server) as third,
    ):
        for browser in (second, first):
            browser.send(http1.get("/a"))
            assert (await browser.answer())[0] == 200
        third.send(http1.get("/hold"))
        await eventually(lambda: held.exchanges, "one is at work")
        async with http1.connected(server) as fourth:
            fourth.send(http1.get("/b"))
            assert (await fourth.answer())[2] == b"/b"
            assert await second.closed()
            held.exchanges[0].respond(200, ())
            assert (await third.answer())[0] == 200
            first.send(http1.get("/c"))
            assert (await first.answer())[2] == b"/c"


async def test_an_idle_http2_connection_makes_room_too():
    async with serving(http2=Http2Limits(connections=1)) as (server, _), connected(server.port) as first:
        first.ask(1, b"served")
        await first.response(1)
        async with connected(server.port) as second:
            second.ask(1, b"served, too")
            assert (await second.response(1))[0] == prefixed(b"served, too")
            assert (await first.ended())[0] == h2.NO_ERROR


async def test_line_ends_between_requests_keep_no_connection_open():
    async with http1.serving() as (server, _), http1.connected(server) as browser:
        browser.send(http1.get("/a"))
        assert (await browser.answer())[0] == 200
        (connection,) = server.connections
        answered = connection.touched
        for _ in range(10):
            browser.send(b"\r\n")
            await asyncio.sleep(0.02)
        assert connection.touched == answered
        browser.send(http1.get("/b"))
        assert (await browser.answer())[0] == 200
        assert connection.touched > answered
