"""Trouble over HTTP beside others who notice nothing.

The protocol's rules are tested in ``tests/net``; here is a row of each kind, for a real gateway and a real executor.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from contextlib import ExitStack

import grpc.aio
import numpy as np
import onnxruntime
import pytest
from tritonclient.grpc import service_pb2 as pb

from tests.gateway.conftest import AUTH, KEY, wait_for
from tests.gateway.test_late_binding import counted
from tests.net.test_http1_refusals import CHUNKED, MALFORMED, POST
from tools.waiting import eventually_async

from .conftest import COLUMNS, MAX_REQUEST_MB, MIB
from .wire import Client, answer, message, post, request

INFER = b"POST /v2/models/app/infer HTTP/1.1\r\nhost: a\r\nauthorization: " + AUTH["Authorization"].encode() + b"\r\n"
#: as many rows as a request may hold, nearly
LARGEST = np.zeros(((MAX_REQUEST_MB * MIB - 4096) // (4 * COLUMNS), COLUMNS), np.float32)
WAYS = pytest.mark.parametrize("reset", [False, True], ids=["closing", "reset"])

# --- what nobody has to take ------------------------------------------------------------------------------------------


def head(method: str, path: str, *lines: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: a", *lines]).encode() + b"\r\n\r\n"


def test_all_of_it_at_once_disturbs_nobody(served):
    with served.bystanders(least=60):
        for _ in range(10):
            clients = [Client(served.gateway.port) for _ in MALFORMED]
            for client, data in zip(clients, MALFORMED.values(), strict=True):
                client.send(data)
            for client in clients:
                client.vanish(reset=True)


@pytest.mark.parametrize(
    "path",
    ["/v2/models/a%0d%0aset-cookie:%20a=b/infer", "/v2/models/app/versions/v%0d%0ax-injected:%20a/infer", "/a%0ab"],
)
def test_nothing_that_a_client_sends_becomes_a_header(served, path):
    with Client(served.gateway.port) as client:
        client.send(post(path, b"{}", **AUTH))
        status, headers, body = client.answer()
    assert status == 404
    assert headers.keys() - {"connection"} == {"date", "content-type", "content-length"}
    assert json.loads(body)["error"]


def test_an_id_with_line_ends_comes_back_as_it_went(served):
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    body = json.dumps({"id": "a\r\nx-injected: b\r\n\r\n", "inputs": [tensor]}).encode()
    with Client(served.gateway.port) as client:
        client.send(post("/v2/models/app/infer", body, **AUTH))
        status, headers, content = client.answer()
    assert (status, json.loads(content)["id"]) == (200, "a\r\nx-injected: b\r\n\r\n")
    assert "x-injected" not in headers


def test_trailers_are_no_headers(stack):
    """Trailers after the body cannot admit a request, nor change how it is read."""
    described = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}'
    keyless = b"POST /v2/models/app/infer HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    late_key = b"authorization: " + AUTH["Authorization"].encode() + b"\r\n"
    chunk = b"%x\r\n" % len(described) + described + b"\r\n0\r\n"
    with Client(stack.gateway.port) as client:
        client.send(keyless + chunk + late_key + b"\r\n")
        assert client.answer()[0] == 401
    with Client(stack.gateway.port) as client:
        client.send(
            CHUNKED.replace(POST, INFER)
            + chunk
            + b"inference-header-content-length: 3\r\ncontent-encoding: gzip\r\n\r\n"
        )
        assert client.answer()[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "line", "status"),
    [
        ("GET", "/health", "content-length: 65", 413),
        ("GET", "/metrics", f"content-length: {MAX_REQUEST_MB * MIB}", 413),
        ("GET", "/v2/health/live", "content-length: 9999999999999999", 413),
        ("GET", "/v2/health/ready", "transfer-encoding: chunked", 400),
        ("GET", "/health", "content-encoding: gzip\r\ncontent-length: 20", 400),
        ("POST", "/v2/models/large/infer", f"content-length: {MAX_REQUEST_MB * MIB}", 401),
        ("POST", "/v2/repository/index", "transfer-encoding: chunked", 401),
        ("POST", "/v2/what", f"content-length: {MAX_REQUEST_MB * MIB}", 401),
        ("POST", "/what", "transfer-encoding: chunked", 404),
        ("POST", "/health", f"content-length: {MAX_REQUEST_MB * MIB}", 405),
    ],
)
def test_bodies_without_a_key_or_a_use_are_refused_at_the_head(served, method, path, line, status):
    with Client(served.gateway.port) as client:
        # Nothing of the body is sent: the answer comes without it.
        client.send(head(method, path, line))
        found, headers, _ = client.answer()
        assert (found, headers["connection"]) == (status, "close")


@pytest.mark.parametrize("size", [0, 2])
def test_a_body_of_no_size_to_speak_of_is_let_pass(served, size):
    with Client(served.gateway.port) as client:
        for _ in range(3):
            client.send(head("GET", "/v2/health/live", f"content-length: {size}") + b"{}"[:size])
            assert client.answer()[0] == 200


def test_bodies_on_open_paths_leave_the_buffer_to_others(served):
    body = bytes(MAX_REQUEST_MB * MIB - 1)
    before = served.rss("gateway")
    with ExitStack() as stack:
        for _ in range(18):
            client = stack.enter_context(Client(served.gateway.port))
            with contextlib.suppress(ConnectionError):
                client.send(head("GET", "/health", f"content-length: {len(body) + 1}") + body)
        assert served.rss("gateway") - before < 64 * MIB
        with served.bystanders(), Client(served.gateway.port) as honest:
            honest.send(request("large", LARGEST, **{"x-new": "a head not seen before"}))
            assert honest.answer()[0] == 200


#: as Java's java.net.http.HttpClient sends it with each request to an http URL
OFFER = (
    "Connection: Upgrade, HTTP2-Settings",
    "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    "Upgrade: h2c",
    "User-Agent: Java-http-client/17.0.9",
)


@pytest.mark.parametrize("chunked", [False, True], ids=["with a length", "in chunks"])
def test_java_s_offer_of_h2c_is_ignored_and_its_body_read(served, numbers, chunked):
    begun, _, body = request("large", numbers).partition(b"\r\n\r\n")
    lines = [line for line in begun.split(b"\r\n") if not (chunked and line.startswith(b"content-length"))]
    lines += [line.encode() for line in OFFER]
    if chunked:
        lines.append(b"Transfer-encoding: chunked")
        body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:10], body[10:])) + b"0\r\n\r\n"
    whole = b"\r\n".join(lines) + b"\r\n\r\n" + body
    with Client(served.gateway.port) as client:
        # Also without a body, and with others behind it.
        client.send((whole + head("GET", "/v2/health/live", *OFFER)) * 2 + whole)
        for place in range(5):
            found, headers, content = client.answer()
            assert (found, "connection" in headers) == (200, False)
            assert place % 2 or content == (-numbers).tobytes()


# --- slow -------------------------------------------------------------------------------------------------------------


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
    # 300 MB of answers are asked for in one go. The gateway holds a small part of them meanwhile.
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
    # Bodies of unfinished requests have a limit together, beyond which new ones are refused with a time to retry.
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
    # Clients vanish time and again, so that bodies that were kept would add up to more than a process may have had to
    # spare before.
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


# --- gone -------------------------------------------------------------------------------------------------------------


@WAYS
def test_in_mid_request(served, numbers, reset):
    with served.bystanders():
        for sent in (10, 150, 10_000) * 10:
            client = Client(served.gateway.port)
            client.send(request("large", numbers)[:sent])
            client.vanish(reset)


@WAYS
def test_in_mid_response(served, reset):
    x = np.zeros((64, COLUMNS), np.float32)
    before = counted(served.gateway, "nereus_gateway_queries_total")
    with served.bystanders():
        for _ in range(10):
            client = Client(served.gateway.port, receive_bytes=4096)
            client.send(request("large", x))
            assert client.socket.recv(1024).startswith(b"HTTP/1.1 200 OK")
            client.vanish(reset)
    assert counted(served.gateway, "nereus_gateway_queries_total") > before


def test_with_answers_of_a_pipeline_still_to_come(served, numbers):
    with served.bystanders():
        for _ in range(10):
            client = Client(served.gateway.port, receive_bytes=4096)
            client.send(request("large", numbers) * 20)
            assert client.socket.recv(1024).startswith(b"HTTP/1.1 200 OK")
            client.vanish(reset=True)


@WAYS
async def test_one_of_a_batch_leaves_it_to_the_others(served, reset):
    """One goes while the batch runs; each of the others gets its own answer, over HTTP and gRPC."""
    random = np.random.default_rng(5)
    inputs = random.uniform(0.1, 0.4, (9, 1, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(served.models["slow"]), providers=["CPUExecutionProvider"])
    # The first one's run is what the rest gathers behind.
    first = asyncio.create_task(_ask(served, inputs[0]))
    await _until(lambda: first.done() or served.gateway.health()["in_flight"] >= 1)
    async with grpc.aio.insecure_channel(served.gateway.grpc) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        others = [asyncio.create_task(_ask(served, x)) for x in inputs[1:5]]
        calls = [infer(message("slow", x), metadata=(("authorization", f"Bearer {KEY}"),)) for x in inputs[5:8]]
        leaving = Client(served.gateway.port)
        leaving.send(request("slow", inputs[8]))
        gone = infer(message("slow", inputs[8]), metadata=(("authorization", f"Bearer {KEY}"),))
        status, _, content = await first
        np.testing.assert_allclose(np.frombuffer(content, np.float32), session.run(None, {"x": inputs[0]})[0][0], 1e-4)
        # Its batch is answered, so theirs runs now.
        await _until(lambda: served.gateway.health()["held"] == 0)
        leaving.vanish(reset)
        gone.cancel()
        answers = [(await one)[2] for one in others]
        answers += [pb.ModelInferResponse.FromString(await one).raw_output_contents[0] for one in calls]
    assert status == 200
    for x, content in zip(inputs[1:8], answers, strict=True):
        np.testing.assert_allclose(np.frombuffer(content, np.float32), session.run(None, {"x": x})[0][0], 1e-4)


async def _ask(served, x: np.ndarray) -> tuple[int, dict, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.gateway.port)
    writer.write(request("slow", x))
    try:
        return await answer(reader)
    finally:
        writer.close()


async def _until(condition) -> None:
    await eventually_async(lambda: asyncio.to_thread(condition))
