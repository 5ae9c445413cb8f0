"""Calls that end early, a gateway that stops, and gRPC and HTTP at once."""

from __future__ import annotations

import asyncio
import queue
import re
import signal
import socket
import threading

import grpc
import grpc.aio
import httpx2
import numpy as np
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException

from tools.waiting import eventually_async

from .conftest import AUTH, VARIANTS, GatewayProcess, wait_for
from .test_failures import BODY, PATH, X, start
from .test_grpc_errors import CODE, KEYED, SERVICE, call, refused, request

KEY = dict(KEYED)


def numbers() -> list[triton.InferInput]:
    tensor = triton.InferInput("x", [1, 4], "FP32").set_data_from_numpy(np.array(X, np.float32))
    return [tensor]


def ended(gateway: GatewayProcess) -> dict[str, float]:
    text = gateway.http.get("/metrics").text
    found = re.findall(
        r'^nereus_gateway_queries_total{application="numbers",outcome="(\w+)"} (\S+)$', text, re.MULTILINE
    )
    return {outcome: float(count) for outcome, count in found}


def accuracy(gateway: GatewayProcess, of: str) -> float:
    name = f'nereus_gateway_accuracy_percent_total{{application="numbers",of="{of}"}} '
    (line,) = (line for line in gateway.http.get("/metrics").text.splitlines() if line.startswith(name))
    return float(line.removeprefix(name))


def idle(gateway: GatewayProcess) -> bool:
    health = gateway.health()
    return health["in_flight"] == 0 and health["held"] == 0


def test_a_cancelled_call_leaves_the_queue(gateways, devices):
    gateway, only = start(gateways, devices, ["d0"], slo_s=60.0)
    only.tell(mute=True)
    answers = queue.SimpleQueue()
    with triton.InferenceServerClient(gateway.grpc) as client:
        calls = [
            client.async_infer("numbers", numbers(), lambda result, error: answers.put(error), headers=KEY)
            for _ in range(5)
        ]
        wait_for(lambda: gateway.health()["in_flight"] == 5, "all are under way")
        for one in calls:
            one.cancel()
        errors = [answers.get(timeout=60) for _ in calls]
        assert all("cancelled" in str(error) for error in errors)
        wait_for(lambda: idle(gateway), "all are forgotten")
    # Those that were held never went there; whatever did is taken back.
    wait_for(lambda: len(only.reported("cancel")) == len(only.reported("query")), "the device is notified")
    assert ended(gateway) == {"cancelled": 5}


def test_a_deadline_is_the_query_s_budget(gateways, devices):
    gateway, only = start(gateways, devices, ["d0"], slo_s=200.0, stack="infaas-accuracy")
    with grpc.insecure_channel(gateway.grpc) as channel:
        call(channel, request(latency_ms=900_000), timeout=50)
        call(channel, request(latency_ms=25_000), timeout=300)
        call(channel, request(), timeout=300)
    # Less the way to the device and back; SLO, latency_ms and deadline: the tightest holds.
    budgets = [event["budget_s"] for event in only.said("query")]
    for budget, limit in zip(budgets, (50.0, 25.0, 200.0), strict=True):
        assert 0.6 * limit < budget < limit
    assert ended(gateway) == {"in_time": 3}
    assert accuracy(gateway, "metric") / 3 in {percent for _, percent in VARIANTS["numbers"].values()}
    assert 0 < accuracy(gateway, "best") / 3 <= 100


def test_a_deadline_that_passes_is_a_query_that_was_not_answered_in_time(gateways, devices):
    gateway, only = start(gateways, devices, ["d0"], slo_s=5.0)
    only.tell(mute=True)
    with grpc.insecure_channel(gateway.grpc) as channel:
        for _ in range(40):
            error = refused(channel, request(), timeout=1.0)
            assert error.code() is CODE.DEADLINE_EXCEEDED
            wait_for(lambda: idle(gateway), "it is forgotten")
            # At its deadline the client gives up as well, and on a busy machine may be received first.
            if "dropped" in ended(gateway):
                break
    ends = ended(gateway)
    assert ends.keys() <= {"dropped", "cancelled"} and ends["dropped"] == 1


async def test_sigterm_finishes_what_is_under_way(gateways, devices):
    gateway, only = start(gateways, devices, ["d0"], slo_s=60.0)
    only.tell(delay_s=0.3)
    async with (
        grpc.aio.insecure_channel(gateway.grpc) as channel,
        httpx2.AsyncClient(base_url=gateway.url, headers=AUTH, timeout=300) as http,
    ):
        infer = channel.unary_unary(SERVICE + "ModelInfer")
        waiting = [infer(request().SerializeToString(), metadata=KEYED) for _ in range(5)]
        over_http = [asyncio.create_task(http.post(PATH, content=BODY)) for _ in range(5)]
        stream = channel.stream_stream(SERVICE + "ModelStreamInfer")(metadata=KEYED)
        await stream.write(request().SerializeToString())
        await eventually_async(lambda: len(only.reported("query")) >= 11)
        gateway.process.send_signal(signal.SIGTERM)
        for one in waiting:
            assert pb.ModelInferResponse.FromString(await one).model_version == "big"
        assert [(await one).status_code for one in over_http] == [200] * 5
        answer = pb.ModelStreamInferResponse.FromString(await stream.read())
        assert (answer.error_message, answer.infer_response.model_version) == ("", "big")
        # The stream itself does not keep the gateway; it receives the reason why it ends.
        assert (await stream.code(), await stream.details()) == (
            CODE.UNAVAILABLE,
            "the gateway is stopping; try another or try again",
        )
    assert await asyncio.to_thread(gateway.process.wait, 120) == 0
    for port in (gateway.port, int(gateway.grpc.rpartition(":")[2])):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_http_and_grpc_together_add_up(gateways, devices):
    gateway, only = start(gateways, devices, ["d0"], slo_s=60.0)
    only.tell(delay_s=0.002)
    each = 60
    failures: list[object] = []

    def over_http() -> None:
        for _ in range(each):
            status = gateway.http.post(PATH, content=BODY, headers=AUTH).status_code
            if status != 200:
                failures.append(status)

    def over_grpc() -> None:
        with triton.InferenceServerClient(gateway.grpc) as client:
            for i in range(each):
                try:
                    # Every sixth is wrong, and is no query.
                    client.infer("numbers", numbers() if i % 6 else [], headers=KEY)
                except InferenceServerException as error:
                    if i % 6:
                        failures.append(error)

    threads = [threading.Thread(target=target) for target in (over_http, over_grpc) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert ended(gateway) == {"in_time": 3 * each + 3 * each * 5 // 6}
    with triton.InferenceServerClient(gateway.grpc) as client:
        (statistics,) = client.get_inference_statistics("numbers", headers=KEY).model_stats
    http = gateway.http.get("/v2/models/numbers/stats", headers=AUTH).json()["model_stats"][0]
    assert statistics.inference_count == http["inference_count"] == 3 * each + 3 * each * 5 // 6
    assert idle(gateway)
