"""Large queries: bounded by their application, and parsed apart."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import signal
import threading

import grpc
import msgspec
import psutil
import pytest
from tritonclient.grpc import service_pb2 as pb

from tests.pressure.wire import answer, post
from tools.waiting import eventually_async
from workers.gateway import parsing
from workers.gateway.catalog import Catalog
from workers.gateway.errors import Unavailable
from workers.gateway.parser_process import Parsed, ParseOrder
from workers.gateway.parsing import Parse, Parsing
from workers.protocol.specs import PlanSpec

from .conftest import AUTH, EVERY, application, config, plan, wait_for
from .test_failures import PATH
from .test_grpc_errors import CODE, KEYED, SERVICE, call, refused, request

TEXTS = "/v2/models/words/infer"
HEADER = "Inference-Header-Content-Length"
#: from the signature of ``numbers``: 64 rows of 4 numbers
MOST_JSON, MOST_BINARY = 64 * 1024 + 64 * 4 * 64, 64 * 4 * 4


def texts(*sizes: int, id: str = "") -> dict:
    data = ["ab" * (size // 2) for size in sizes]
    return {"id": id, "inputs": [{"name": "text", "datatype": "BYTES", "shape": [len(data), 1], "data": data}]}


def upper(response: dict) -> list[int]:
    data = response["outputs"][0]["data"]
    assert all(set(text) == {"A", "B"} for text in data)
    return [len(text) for text in data]


def message(*sizes: int, id: str = "") -> pb.ModelInferRequest:
    data = [b"ab" * (size // 2) for size in sizes]
    return pb.ModelInferRequest(
        model_name="words",
        id=id,
        inputs=[{"name": "text", "datatype": "BYTES", "shape": [len(data), 1], "contents": {"bytes_contents": data}}],
    )


def lengths(response: pb.ModelInferResponse) -> list[int]:
    data, found = response.raw_output_contents[0], []
    while data:
        size = int.from_bytes(data[:4], "little")
        found.append(size)
        data = data[4 + size :]
    return found


def parsers(gateway) -> list[psutil.Process]:
    """Parser processes, without multiprocessing's resource tracker."""
    children = psutil.Process(gateway.process.pid).children()
    return [one for one in children if "resource_tracker" not in " ".join(one.cmdline())]


@pytest.fixture(scope="module")
def parser(served) -> psutil.Process:
    def started() -> psutil.Process | None:
        # The first is parsed by the gateway itself.
        assert served.post(TEXTS, texts(100_000)).status_code == 200
        return next(iter(parsers(served)), None)

    wait_for(started, "the parser process runs")
    (process,) = parsers(served)
    used = sum(process.cpu_times()[:2])

    def parses() -> bool:
        served.post(TEXTS, texts(500_000))
        return sum(process.cpu_times()[:2]) > used

    wait_for(parses, "it parses")
    return process


@contextlib.contextmanager
def stopped(process: psutil.Process):
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "length", "says"),
    [
        ({}, MOST_JSON + 1, f"{MOST_JSON + 1} bytes of JSON; at most {MOST_JSON}, ample for the 64 rows"),
        ({HEADER: "70"}, MOST_JSON + MOST_BINARY + 1, f"at most {MOST_JSON + MOST_BINARY}, ample for the 64 rows"),
        ({HEADER: str(MOST_JSON + 1)}, MOST_JSON + 2, f"{MOST_JSON + 1} bytes of JSON; at most {MOST_JSON}"),
    ],
)
async def test_a_body_that_cannot_be_right_is_refused_by_its_head(served, headers, length, says):
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    head = post(PATH, b"", **AUTH, **headers).replace(b"content-length: 0", b"content-length: %d" % length)
    assert b"%d" % length in head
    writer.write(head)
    status, _, body = await answer(reader)
    assert (status, says in json.loads(body)["error"]) == (413, True)
    writer.close()


async def test_a_body_in_chunks_has_the_same_limit(served):
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    lines = [f"POST {PATH} HTTP/1.1", "host: a", f"authorization: {AUTH['Authorization']}"]
    writer.write("\r\n".join([*lines, "transfer-encoding: chunked", "", ""]).encode())
    writer.write(b"%x\r\n" % MOST_JSON + b" " * MOST_JSON + b"\r\n1\r\n \r\n")
    status, _, body = await answer(reader)
    assert (status, json.loads(body)["error"]) == (413, f"body: at most {MOST_JSON} bytes")
    writer.close()


def test_a_large_body_for_no_application_is_not_read(served):
    response = served.post("/v2/models/none/infer", b" " * 70_000)
    assert (response.status_code, "no such application" in response.json()["error"]) == (404, True)


def test_json_has_a_limit_of_its_own(gateways, devices):
    (device,) = devices("d0")
    device.warm(("words", "only"))
    placed = plan(1, {"d0": [("words", "only")]}, {"d0": device.endpoint})
    gateway = gateways(config(placed, [application("words")]), NEREUS_MAX_JSON_MB="1", NEREUS_MAX_REQUEST_MB="4")
    gateway.wait_ready()
    response = gateway.post(TEXTS, b" " * (1024 * 1024 + 1))
    assert response.status_code == 413
    assert "at most 1048576 (NEREUS_MAX_JSON_MB); send large tensors as binary data" in response.json()["error"]
    item = {"name": "text", "datatype": "BYTES", "shape": [1, 1], "parameters": {"binary_data_size": 2_000_004}}
    header = json.dumps(
        {"inputs": [item], "outputs": [{"name": "upper", "parameters": {"binary_data": True}}]}
    ).encode()
    body = header + (2_000_000).to_bytes(4, "little") + b"ab" * 1_000_000
    response = gateway.post(TEXTS, body, **{HEADER: str(len(header))})
    assert response.status_code == 200, response.text
    assert response.content.endswith(b"AB" * 1_000_000)


def test_texts_are_counted_before_they_are_walked_through(served):
    size = 200_000
    item = {"name": "text", "datatype": "BYTES", "shape": [1, 1], "parameters": {"binary_data_size": size}}
    header = json.dumps({"inputs": [item]}).encode()
    response = served.post(TEXTS, header + bytes(size), **{HEADER: str(len(header))})
    assert (response.status_code, "more than the 1 BYTES elements" in response.json()["error"]) == (400, True)
    item["shape"] = [64, 1]
    item["parameters"] = {"binary_data_size": 252}
    header = json.dumps({"inputs": [item]}).encode()
    response = served.post(TEXTS, header + bytes(252), **{HEADER: str(len(header))})
    assert (response.status_code, "takes at least 256" in response.json()["error"]) == (400, True)


# --- apart ------------------------------------------------------------------------------------------------------------


def test_large_queries_are_answered_as_small_ones_are(served, parser):
    for sizes in ((10,), (100_000, 2), (300_000, 300_000)):
        body = texts(*sizes, id="mine")
        for given, headers in (
            (json.dumps(body).encode(), {}),
            (gzip.compress(json.dumps(body).encode()), {"Content-Encoding": "gzip"}),
        ):
            response = served.post(TEXTS, given, **headers)
            assert response.status_code == 200, response.text
            assert (upper(response.json()), response.json()["id"]) == (list(sizes), "mine")


def test_errors_of_large_queries_are_those_of_small_ones(served, parser):
    for size in (10, 200_000):
        body = texts(size)
        body["inputs"][0]["shape"] = [2, 1]
        response = served.post(TEXTS, body)
        assert response.status_code == 400
        assert response.json()["error"] == "inputs.text.data: has 1 elements; shape [2, 1] takes 2"
    bomb = gzip.compress(b" " * 40_000_000)
    response = served.post(TEXTS, bomb, **{"Content-Encoding": "gzip"})
    assert (response.status_code, "at most 1048576 bytes once decompressed" in response.json()["error"]) == (413, True)


def test_a_parser_is_started_without_the_gateways_settings(served, parser):
    """``/proc`` shows what a process was started with, and settings include secrets."""
    children = psutil.Process(served.process.pid).children(recursive=True)
    assert parser in children
    assert [name for one in children for name in one.environ() if name.startswith("NEREUS_")] == []


async def test_small_queries_are_served_and_answers_stay_in_order_while_one_is_parsed(served, parser):
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    with stopped(parser):
        for body in (texts(400_000, id="large"), texts(4, id="small")):
            writer.write(post(TEXTS, json.dumps(body).encode(), **AUTH))
        # Another connection is served meanwhile.
        assert (await asyncio.to_thread(served.post, TEXTS, texts(6))).status_code == 200
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(1), 0.2)
    found = [json.loads((await answer(reader))[2]) for _ in range(2)]
    assert [(one["id"], upper(one)) for one in found] == [("large", [400_000]), ("small", [4])]
    writer.close()


async def test_a_client_that_leaves_while_its_query_is_parsed_costs_no_run(served, parser):
    with stopped(parser):
        _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(post(TEXTS, json.dumps(texts(400_000)).encode(), **AUTH))
        await writer.drain()
        await asyncio.sleep(0.2)
        before = served.health()["in_flight"]
        writer.transport.abort()
        await asyncio.sleep(0.2)
    assert before == 0
    assert served.post(TEXTS, texts(400_000)).status_code == 200
    assert not [line for line in served.log if '"level": "error"' in line and "link_refused" not in line]


def test_a_parser_that_is_killed_loses_no_query(served, parser):
    responses = []
    parser.send_signal(signal.SIGSTOP)
    sender = threading.Thread(target=lambda: responses.append(served.post(TEXTS, texts(400_000))))
    sender.start()
    sender.join(0.5)
    assert sender.is_alive()
    parser.kill()
    sender.join(60)
    assert [(one.status_code, upper(one.json())) for one in responses] == [(200, [400_000])]
    wait_for(lambda: len(parsers(served)) == 1, "there is one parser process")


def test_calls_are_parsed_apart_too(served):
    with grpc.insecure_channel(served.grpc, options=[("grpc.max_send_message_length", -1)]) as channel:
        for sizes in ((10,), (300_000, 300_000), (500_000,)):
            for given in ({}, {"compression": grpc.Compression.Gzip}):
                response = pb.ModelInferResponse.FromString(call(channel, message(*sizes, id="a"), **given))
                assert (response.id, lengths(response)) == ("a", list(sizes))
        wrong = message(300_000)
        wrong.inputs[0].shape[0] = 2
        for given in ({}, {"compression": grpc.Compression.Gzip}):
            error = refused(channel, wrong, **given)
            assert (error.code(), "has 1 elements" in error.details()) == (CODE.INVALID_ARGUMENT, True)
            error = refused(channel, message(2_000_000), **given)
            assert (error.code(), "larger than max" in error.details()) == (CODE.RESOURCE_EXHAUSTED, True)
        unknown = message(300_000)
        unknown.model_name = "none"
        assert refused(channel, unknown, compression=grpc.Compression.Gzip).code() is CODE.NOT_FOUND


def test_answers_of_a_stream_stay_in_order_whichever_queries_are_parsed_apart(served):
    wrong = message(300_000, id="wrong")
    wrong.inputs[0].shape[0] = 2
    asked = [
        message(10, id="0"),
        message(400_000, id="1"),
        request(),
        wrong,
        message(300_000, 5_000, id="4"),
        message(2, id="5"),
    ]
    with grpc.insecure_channel(served.grpc, options=[("grpc.max_send_message_length", -1)]) as channel:
        for given in ({}, {"compression": grpc.Compression.Gzip}):
            stream = channel.stream_stream(SERVICE + "ModelStreamInfer")
            messages = (one.SerializeToString() for one in asked)
            found = [
                pb.ModelStreamInferResponse.FromString(one)
                for one in stream(messages, metadata=KEYED, timeout=60, **given)
            ]
            assert [one.infer_response.id for one in found] == ["0", "1", "", "wrong", "4", "5"]
            assert "has 1 elements" in found[3].error_message
            assert lengths(found[4].infer_response) == [300_000, 5_000]


# --- a configuration that comes meanwhile -----------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def parsed(*catalogs: Catalog):
    """What becomes of a request that is parsed by the first catalog, under the last."""
    outcome: asyncio.Future = asyncio.get_running_loop().create_future()
    present = [catalogs[0]]
    parsing = Parsing(lambda: present[0], 1 << 20)
    order = ParseOrder(json.dumps(texts(10)).encode(), b"identity", 1 << 20, 64, "words", None)
    parsing.submit(Parse("a", order, lambda _, found: outcome.set_result(found)))
    await eventually_async(lambda: "signatures" in vars(catalogs[0]) or outcome.done())
    present[0] = catalogs[-1]
    yield await outcome
    await parsing.close()


def catalog(*applications) -> Catalog:
    return Catalog(config(PlanSpec(1), list(applications)))


async def test_a_request_for_an_application_that_is_gone_by_its_turn_is_left_to_its_edge():
    async with parsed(catalog()) as outcome:
        # The edge says that there is no such application.
        assert isinstance(outcome, Parsed) and outcome.query is None


async def test_a_request_that_was_parsed_by_another_signature_may_come_again():
    words = application("words")
    for before, after in ((words, EVERY), (None, words.signature)):
        renewed = msgspec.structs.replace(words, signature=after)
        async with parsed(catalog(*([before] if before else [])), catalog(renewed)) as outcome:
            assert isinstance(outcome, Unavailable) and "have just changed" in str(outcome)
    async with parsed(catalog(words), catalog(words)) as outcome:
        assert outcome.query.terms.rows == 1


# --- its process ------------------------------------------------------------------------------------------------------


async def test_settings_are_set_aside_only_while_a_process_starts_and_bodies_are_freed(monkeypatch):
    entered, without_settings = [], parsing._without_settings
    monkeypatch.setattr(parsing, "_without_settings", lambda: entered.append(1) or without_settings())
    words = catalog(application("words"))
    apart = Parsing(lambda: words, 1 << 20)
    for _ in range(3):
        order = ParseOrder(json.dumps(texts(10)).encode(), b"identity", 1 << 20, 64, "words", None)
        outcome: asyncio.Future = asyncio.get_running_loop().create_future()
        apart.submit(Parse("a", order, lambda _, found, outcome=outcome: outcome.set_result(found)))
        assert (await outcome).query is not None
        assert order.body == b""
    assert len(entered) == 1
    await apart.close()
