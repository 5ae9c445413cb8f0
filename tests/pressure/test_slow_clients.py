"""Clients that send or read as slowly as they can hold nobody up.

The memory that is kept for them is bounded.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

import numpy as np
import pytest

from tests.gateway.conftest import wait_for

from .conftest import COLUMNS, MAX_REQUEST_MB, MIB
from .wire import Client, request

#: as many rows as a request may hold, nearly
LARGEST = np.zeros(((MAX_REQUEST_MB * MIB - 4096) // (4 * COLUMNS), COLUMNS), np.float32)
ONE = np.array([[1.0, 2.0, 3.0, 4.0]], np.float32)


def test_an_answer_that_is_taken_bit_by_bit_arrives_whole(served, numbers):
    with served.bystanders(), Client(served.gateway.port, receive_bytes=4096) as client:
        client.send(request("large", numbers))
        status, _, content = client.answer(piece=2048, pause=lambda: time.sleep(0.002))
        assert status == 200
        np.testing.assert_array_equal(np.frombuffer(content, np.float32).reshape(numbers.shape), -numbers)


def test_many_who_stop_in_the_middle_of_a_request_cost_others_nothing(served, numbers):
    whole = request("large", numbers)
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(served.gateway.port)) for _ in range(200)]
        for i, client in enumerate(clients):
            # Some stop within the head, some within the body.
            client.send(whole[: 20 + 1000 * (i % 3)])
        with served.bystanders(least=60):
            time.sleep(0.2)
        # They were slow, no more than that.
        for i, client in enumerate(clients):
            client.send(whole[20 + 1000 * (i % 3) :])
            status, _, content = client.answer()
            assert status == 200
            assert content == (-numbers).tobytes()


def test_who_asks_for_much_and_reads_nothing_is_not_given_the_gateways_memory(served):
    """A client that asks for much and reads nothing fills no memory of the gateway.

    300 MB of answers are asked for in one go. The gateway holds a small part of them meanwhile.
    """
    x = np.random.default_rng(1).standard_normal((48, COLUMNS), dtype=np.float32)
    asked, count = request("large", x), 100
    before = served.rss("gateway")
    with served.bystanders(least=60), Client(served.gateway.port, receive_bytes=65536) as client:
        client.socket.setblocking(False)
        left, stuck = memoryview(asked * count), time.monotonic() + 1.0
        while left and time.monotonic() < stuck:
            try:
                left = left[client.socket.send(left) :]
                stuck = time.monotonic() + 1.0
            except BlockingIOError:
                time.sleep(0.01)
        # It is read no faster than it takes its answers.
        assert len(left) > len(asked) * count / 2
        assert served.rss("gateway") - before < 100 * MIB
        # And it has lost nothing by that.
        client.socket.settimeout(60)
        sent = len(asked) * count - len(left)
        for _ in range(sent // len(asked)):
            status, _, content = client.answer(piece=MIB)
            assert status == 200
            assert content == (-x).tobytes()


def test_large_bodies_that_never_end_are_refused_before_memory_is_gone(served):
    """Large bodies that never end are refused before memory is gone.

    Bodies of unfinished requests have a limit together, beyond which new ones are refused with a time to retry.
    """
    whole, before, connections = request("large", LARGEST), served.rss("gateway"), served.connections("gateway")
    with served.bystanders(), ExitStack() as stack:
        clients = [stack.enter_context(Client(served.gateway.port)) for _ in range(18)]
        for client in clients:
            client.send(whole[:-1])
            wait_for(lambda client=client: client.answered or not client.untaken(), "it is read")
        wait_for(lambda: any(client.answered for client in clients), "the last ones are refused")
        refused = [client for client in clients if client.answered]
        assert len(refused) < len(clients) / 2
        for client in refused:
            status, headers, _ = client.answer()
            assert status == 503
            assert int(headers["retry-after"]) >= 1
        assert served.rss("gateway") - before < 320 * MIB
    wait_for(lambda: served.connections("gateway") <= connections, "the clients are forgotten")
    with Client(served.gateway.port) as client:
        client.send(whole)
        assert client.answer()[0] == 200


@pytest.mark.parametrize("known", [False, True], ids=["a new head", "a head seen before"])
def test_memory_of_bodies_whose_clients_vanish_is_given_back(served, known):
    """Memory of bodies whose clients vanish is given back.

    Clients vanish time and again, so that bodies that were kept would add up to more than a process may have had to
    spare before.
    """
    if known:
        with Client(served.gateway.port) as client:
            client.send(request("large", LARGEST))
            assert client.answer()[0] == 200
    before, connections = served.rss("gateway"), served.connections("gateway")
    for number in range(5):
        with served.bystanders(), ExitStack() as stack:
            clients = [stack.enter_context(Client(served.gateway.port)) for _ in range(6)]
            for place, client in enumerate(clients):
                client.send(request("large", LARGEST, **({} if known else {"x-new": f"{number} {place}"}))[:-1])
                wait_for(lambda client=client: not client.untaken(), "it is read")
            assert not any(client.answered for client in clients)
        wait_for(lambda: served.connections("gateway") <= connections, "the clients are forgotten")
        wait_for(lambda: served.rss("gateway") - before < 2 * MAX_REQUEST_MB * MIB, "it is given back")
