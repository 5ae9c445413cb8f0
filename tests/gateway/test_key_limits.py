"""Limits of API keys: applications, rate, share of capacity, expiry."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import Counter

import grpc
import httpx2
import msgspec
import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.grpc import aio as aio_triton
from tritonclient.utils import InferenceServerException

from workers.gateway import key_limits
from workers.gateway.errors import Forbidden, OverShare, RateLimited, Unauthenticated
from workers.gateway.key_limits import KeyTable
from workers.protocol.control import GatewayConfig, KeyLimits
from workers.protocol.gateways import ApplicationTotals
from workers.protocol.specs import PlanSpec

from .conftest import KEY, application, config, fronts, plan, wait_for

OTHER = "another-key"
ROW = [[1.0, 2.0, 3.0, 4.0]]


def hashed(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def limited(made: GatewayConfig, limits: KeyLimits) -> GatewayConfig:
    return msgspec.structs.replace(
        made, key_hashes=(*made.key_hashes, hashed(OTHER)), key_limits={hashed(OTHER): limits}
    )


@pytest.fixture
def start(gateways, devices):
    def started(limits: KeyLimits, **settings: str):
        (device,) = devices("d0")
        device.warm(("numbers", "big"), ("words", "only"))
        made = config(
            plan(1, {"d0": [("numbers", "big"), ("words", "only")]}, {"d0": device.endpoint}),
            [application("numbers"), application("words")],
        )
        gateway = gateways(limited(made, limits), **settings)
        gateway.wait_ready()
        return gateway, device

    return started


def infer(gateway, key: str = OTHER):
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": ROW}]}
    return gateway.post("/v2/models/numbers/infer", body, Authorization=f"Bearer {key}")


def test_a_key_reaches_its_applications_alone_over_http_and_grpc(start):
    gateway, _ = start(KeyLimits(applications=("words",)))
    refused = infer(gateway)
    assert refused.status_code == 403
    assert refused.json()["error"] == ("model 'numbers': this API key does not reach it; an operator can change that")
    assert infer(gateway, KEY).status_code == 200
    other = {"Authorization": f"Bearer {OTHER}"}
    for path, status in {"numbers": 403, "numbers/config": 403, "numbers/stats": 403, "words": 200}.items():
        assert gateway.http.get(f"/v2/models/{path}", headers=other).status_code == status, path
    index = gateway.http.post("/v2/repository/index", content=b"", headers=other).json()
    assert [entry["name"] for entry in index] == ["words"]
    stats = gateway.http.get("/v2/models/stats", headers=other).json()["model_stats"]
    assert [entry["name"] for entry in stats] == ["words"]
    with triton.InferenceServerClient(gateway.grpc) as client:
        asked = triton.InferInput("x", [1, 4], "FP32").set_data_from_numpy(np.array(ROW, "<f4"))
        lower = {"authorization": f"Bearer {OTHER}"}
        for call in (
            lambda: client.infer("numbers", [asked], headers=lower),
            lambda: client.get_model_metadata("numbers", headers=lower),
            lambda: client.is_model_ready("numbers", headers=lower),
        ):
            with pytest.raises(InferenceServerException) as error:
                call()
            assert grpc.StatusCode.PERMISSION_DENIED.name in str(error.value.status())
        assert client.is_model_ready("words", headers=lower)
        client.infer("numbers", [asked], headers={"authorization": f"Bearer {KEY}"})


def test_a_key_beyond_its_rate_is_refused_with_the_time_to_wait(start):
    gateway, _ = start(KeyLimits(rate=0.01, burst=3))
    assert [infer(gateway).status_code for _ in range(5)] == [200, 200, 200, 429, 429]
    refused = infer(gateway)
    assert "rate is 0.01 queries/s, burst 3" in refused.json()["error"]
    assert 1 <= int(refused.headers["retry-after"]) <= 100
    assert infer(gateway, KEY).status_code == 200, "others are not limited"
    lines = gateway.http.get("/metrics").text.splitlines()
    assert 'nereus_gateway_invalid_requests_total{status="429"} 3.0' in lines


def test_a_key_ends_at_its_expiry_without_the_control_plane(start):
    gateway, _ = start(KeyLimits(expires=time.time() + 2))
    wait_for(lambda: infer(gateway).status_code == 401, "the key expires")
    assert "expired" in infer(gateway).json()["error"]
    assert infer(gateway, KEY).status_code == 200


async def test_while_an_application_refuses_a_key_beyond_its_share_is_refused_first(start):
    gateway, device = start(KeyLimits(share=0.01), NEREUS_QUEUE_ROWS="4")
    assert {infer(gateway).status_code for _ in range(30)} == {200}, "no limit while there is room"
    # Capacity is what was answered in a whole second.
    time.sleep(1.5)
    device.tell(delay_s=0.3)
    limits = httpx2.Limits(max_connections=60)
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": ROW}]})
    by_key: dict[str, Counter] = {KEY: Counter(), OTHER: Counter()}
    async with httpx2.AsyncClient(base_url=gateway.url, timeout=120, limits=limits) as http:

        async def ask(key: str) -> None:
            answer = await http.post(
                "/v2/models/numbers/infer", content=body, headers={"Authorization": f"Bearer {key}"}
            )
            by_key[key][answer.status_code] += 1
            if answer.status_code == 429:
                assert "1% of its capacity" in answer.json()["error"]

        # Many of one key's queries fill the queue; the other key's come while some are refused.
        for _ in range(10):
            await asyncio.gather(*(ask(KEY) for _ in range(40)), *(ask(OTHER) for _ in range(5)))
            if by_key[OTHER][429] > 5:
                break
    assert by_key[OTHER][429] > 5, by_key
    assert by_key[KEY][503] and by_key[KEY][200] and not by_key[KEY][429], by_key


# --- by a clock of its own -------------------------------------------------------------------------------------------


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(key_limits, "time", clock)
    return clock


async def test_a_key_that_has_expired_is_shown_nothing_by_headers_that_were_accepted_before(clock, tmp_path):
    made = limited(config(PlanSpec(1), [application("words")]), KeyLimits(expires=200.0))
    key = {"Authorization": f"Bearer {OTHER}"}
    paths = ("/v2", "/v2/models/words", "/v2/models/words/ready", "/v2/models/words/config", "/v2/models/stats")

    async def statuses(http: httpx2.AsyncClient, client: aio_triton.InferenceServerClient) -> set[int]:
        found = {(await http.get(path, headers=key)).status_code for path in paths}
        found.add((await http.post("/v2/repository/index", content=b"", headers=key)).status_code)
        for call in (client.get_server_metadata, client.get_model_repository_index, client.get_inference_statistics):
            try:
                await call(headers={"authorization": key["Authorization"]})
                found.add(200)
            except InferenceServerException as error:
                found.add(401 if "expired" in error.message() else 500)
        return found

    async with (
        fronts(tmp_path) as (gateway, port, grpc_port),
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http,
        aio_triton.InferenceServerClient(f"127.0.0.1:{grpc_port}") as client,
    ):
        gateway.configure(made)
        # 400: it is not warm.
        assert await statuses(http, client) == {200, 400}
        clock.now = 201.0
        assert await statuses(http, client) == {401}


def admitted(table: KeyTable, seconds: int, per_second: int, clock: Clock) -> int:
    count = 0
    for _ in range(seconds * per_second):
        clock.now += 1 / per_second
        try:
            table.by_hash.get("k").admit("a")
            count += 1
        except RateLimited:
            pass
    return count


def test_a_rate_holds_over_time_after_a_burst(clock):
    table = KeyTable()
    table.configure({"k": KeyLimits(rate=10, burst=50)})
    assert abs(admitted(table, 60, 100, clock) - (50 + 600)) <= 1
    clock.now += 3
    assert abs(admitted(table, 1, 1000, clock) - 40) <= 1, "a pause of 3 s saves 30"


def test_fronts_share_a_rate_by_where_the_queries_are(clock):
    tables = [KeyTable() for _ in range(4)]
    for table in tables:
        table.configure({"k": KeyLimits(rate=100, burst=100)})
    asked = (300, 100, 0, 0)
    counts = []
    for _ in range(20):
        count = 0
        start = clock.now
        for table, queries in zip(tables, asked, strict=True):
            clock.now = start
            count += admitted(table, 1, queries, clock) if queries else 0
        clock.now = start + 1
        counts.append(count)
        for i, table in enumerate(tables):
            elsewhere = sum(other.asked["k"] for j, other in enumerate(tables) if j != i)
            table.second({}, {"k": elsewhere}, len(tables))
    assert 90 <= sum(counts[5:]) / 15 <= 125, counts
    # One more front: it begins with a part of the rate, and soon has its own.
    assert tables[2].by_hash.get("k").part == pytest.approx(0.25 / 4)


def test_totals_of_others_that_come_late_move_no_part(clock):
    table = KeyTable()
    table.configure({"k": KeyLimits(rate=100, burst=100)})
    parts = []
    for elsewhere in (30, 60, 90, 90, 150, 150, 210):
        admitted(table, 1, 10, clock)
        table.second({}, {"k": elsewhere}, 4)
        parts.append(table.by_hash["k"].part)
    assert all(0.2 <= part <= 0.34 for part in parts), parts


def test_a_share_holds_while_the_application_refuses_and_no_longer(clock):
    table = KeyTable()
    table.configure({"k": KeyLimits(share=0.5)})
    key = table.by_hash.get("k")
    total = ApplicationTotals()
    table.second({"a": total}, {}, 1)
    total.rows = 100
    table.second({"a": total}, {}, 1)
    assert [key.beyond_share("a", 10) for _ in range(20)] == [None] * 20, "no query was refused"
    table.second({"a": total}, {}, 1)
    table.refused("a")
    outcomes = [type(key.beyond_share("a", 10)) for _ in range(7)]
    assert outcomes == [type(None)] * 5 + [OverShare] * 2
    assert key.beyond_share("b", 10) is None, "another application has room"
    clock.now += key_limits.REFUSING_S + 0.1
    assert key.beyond_share("a", 10) is None


def test_limits_change_without_a_new_burst_and_go_with_their_key(clock):
    table = KeyTable()
    table.configure({"k": KeyLimits(rate=0.001, burst=1, applications=("a",), expires=200.0)})
    table.by_hash.get("k").admit("a")
    table.configure({"k": KeyLimits(rate=0.001, burst=1, applications=("a", "b"), expires=200.0)})
    with pytest.raises(RateLimited):
        table.by_hash.get("k").admit("b")
    with pytest.raises(Forbidden):
        table.by_hash.get("k").admit("c")
    clock.now = 200.0
    with pytest.raises(Unauthenticated):
        table.by_hash.get("k").admit("a")
    table.configure({})
    assert table.by_hash.get("k") is None


def test_a_saved_configuration_of_an_earlier_release_has_keys_without_limits():
    made = config(plan(1, {}, {}), [])
    saved = msgspec.json.decode(msgspec.json.encode(made))
    del saved["key_limits"]
    assert msgspec.convert(saved, GatewayConfig) == made


def test_limits_that_are_taken_from_a_key_and_given_back_begin_anew():
    table, limits = KeyTable(), {"k": KeyLimits(rate=100.0)}
    table.configure(limits)
    for _ in range(5):
        table.by_hash.get("k").admit("numbers")
    table.second({}, {}, 2)
    table.configure({})
    table.configure(limits)
    # As many queries elsewhere as were counted here before.
    table.second({}, {"k": 5}, 2)
    assert table.by_hash.get("k").part == key_limits.LEAST_PART / 2
