"""Several gateways on one box with one pair of ports, one set of totals and one queue."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import grpc
import httpx2
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from workers.node import metrics
from workers.protocol import control

from .conftest import AUTH, DeviceProcess, GatewayProcess, application, config, free_port, one_device, plan, wait_for
from .test_failures import BODY, PATH, X
from .test_grpc_errors import call, request
from .test_process import run

#: seconds that a page may take on a busy machine
PAGE_S = 60.0


class Pair:
    def __init__(self, folder: Path):
        self.device = DeviceProcess(folder, "d0")
        residents = [("numbers", "big"), ("nan", "only")]
        self.device.warm(*residents)
        placed = plan(1, {"d0": residents}, {"d0": self.device.endpoint}, batch=8)
        nan = msgspec.structs.replace(application("nan"), non_finite="null")
        made = config(placed, [application("numbers"), nan])
        self.first = GatewayProcess(folder / "home", made, NEREUS_GATEWAYS="2")
        self.second = GatewayProcess(folder / "home", beside=self.first, number=2, NEREUS_GATEWAYS="2")
        wait_for(lambda: all(ready(gateway) for gateway in self), "both are ready")

    def __iter__(self) -> Iterator[GatewayProcess]:
        return iter((self.first, self.second))

    def kill_first(self) -> None:
        self.first.process.kill()
        self.first.process.wait()

    def restart_first(self) -> None:
        self.first.admin_socket.unlink(missing_ok=True)
        self.first = GatewayProcess(self.first.home, beside=self.first, NEREUS_GATEWAYS="2")

    def restart_second(self) -> None:
        self.second = GatewayProcess(self.first.home, None, beside=self.first, number=2, NEREUS_GATEWAYS="2")

    def close(self) -> None:
        for gateway in self:
            gateway.process.kill()
            gateway.process.wait()
        self.device.kill()


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """For all tests here; each leaves both serving, except for the last."""
    pair = Pair(tmp_path_factory.mktemp("p"))
    yield pair
    pair.close()


def page(gateway: GatewayProcess, within_s: float = PAGE_S) -> str | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "ANSWER_S", within_s)
        return asyncio.run(metrics._text_of(f"unix:{gateway.admin_socket}", "box"))


def ready(gateway: GatewayProcess) -> bool:
    text = page(gateway)
    return text is not None and samples(text)["nereus_gateway_ready", gateway.name] == 1


def settled(gateway: GatewayProcess) -> int:
    """Queries answered so far, once every process says the same."""
    return wait_for(lambda: len(set(said := counts(gateway))) == 1 and said, "both say the same")[0]


def done(two: Pair, *also: str) -> dict[str, float]:
    """Queries that each process has done by its metrics, and those of ``also``."""
    pages = {g.name: samples(page(g)) for g in two}
    names = ("nereus_gateway_queries_total", *also)
    return {name: sum(found[metric, name] for metric in names) for name, found in pages.items()}


def samples(text: str) -> dict[tuple[str, str], float]:
    found: Counter = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name, sample.labels.get("gateway", "")] += sample.value
    return found


def ask(gateway: GatewayProcess, method: str, path: str, body: bytes = b"") -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    try:
        connection.request(method, path, body, AUTH)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        return answer.read()
    finally:
        connection.close()


def served_by(gateway: GatewayProcess, connections: int = 40) -> Counter:
    names: Counter = Counter()
    for _ in range(connections):
        names[json.loads(ask(gateway, "GET", "/health"))["name"]] += 1
    return names


def infer(gateway: GatewayProcess, connections: int) -> None:
    for _ in range(connections):
        ask(gateway, "POST", PATH, BODY)


def infer_over_grpc(gateway: GatewayProcess, connections: int) -> None:
    for _ in range(connections):
        # Each client would otherwise use the connection of the one before.
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(gateway.grpc, options) as channel:
            call(channel, request())


def counts(gateway: GatewayProcess) -> list[int]:
    found = []
    for _ in range(12):
        stats = json.loads(ask(gateway, "GET", "/v2/models/numbers/stats"))
        found.append(stats["model_stats"][0]["inference_stats"]["success"]["count"])
    return found


def test_connections_reach_both_and_whoever_is_asked_knows_all_queries(two):
    assert set(served_by(two.first)) == {gateway.name for gateway in two}
    for many in (infer, infer_over_grpc):
        before, each_before = settled(two.first), done(two)
        many(two.first, 40)
        wait_for(lambda before=before: set(counts(two.first)) == {before + 40}, "both say 40 more")
        each = {name: count - each_before[name] for name, count in done(two).items()}
        assert sum(each.values()) == 40 and all(each.values())
    # A page that comes by the shared port says whose it is.
    assert {name for _, name in samples(ask(two.first, "GET", "/metrics").decode())} < {g.name for g in two}


def test_a_relayed_answer_has_null_where_the_application_says_so(two):
    (y, n) = json.loads(ask(two.first, "POST", "/v2/models/nan/infer", BODY))["outputs"]
    assert (y["data"], n["data"]) == ([None] * 4, [int(sum(X[0]))])


def test_the_one_with_the_core_reports_its_gauges_and_the_other_does_not_repeat_them(two):
    for gateway in two:
        text = page(gateway)
        assert samples(text)["nereus_gateway_plan_version", gateway.name] == 1
        assert ('nereus_gateway_outstanding{device="d0"' in text) == (gateway is two.first)


def test_a_lone_gateway_shares_its_ports_with_nobody(two):
    for name, address in (("NEREUS_HTTP", f"127.0.0.1:{two.first.port}"), ("NEREUS_GRPC", two.first.grpc)):
        free = {port: f"127.0.0.1:{free_port()}" for port in ("NEREUS_HTTP", "NEREUS_GRPC")}
        result = run(NEREUS_HOME=str(two.first.home / "other"), **free | {name: address})
        assert result.returncode == 1 and name in result.stderr


@pytest.mark.parametrize(("number", "gateways"), [(3, "2"), (0, "2"), (2, "1")])
def test_a_number_beyond_the_setting_is_named(tmp_path, number, gateways):
    result = run("--number", str(number), NEREUS_HOME=str(tmp_path), NEREUS_GATEWAYS=gateways)
    assert result.returncode == 2
    assert result.stderr.strip() == f"--number={number}: must be from 1 to {gateways}, which is NEREUS_GATEWAYS"


def test_nonsense_on_a_gateways_own_socket_harms_nobody(two):
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"NR" + b"\xff" * 200, b"", os.urandom(100)):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(two.first.admin_socket))
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
            peer.settimeout(60)
            try:
                assert peer.recv(10) == b""
            except ConnectionResetError:
                pass
    assert ready(two.first)
    infer(two.first, 5)


def test_a_gateway_that_hangs_is_left_out_in_time(two):
    os.kill(two.second.process.pid, signal.SIGSTOP)
    try:
        assert page(two.second, 0.3) is None
        assert page(two.first) is not None
    finally:
        os.kill(two.second.process.pid, signal.SIGCONT)


def test_one_killed_leaves_the_other_serving_and_its_totals_behind(two):
    infer(two.first, 30)
    before = settled(two.first)
    two.second.process.kill()
    two.second.process.wait()
    assert set(served_by(two.first, 10)) == {two.first.name}
    infer(two.first, 10)
    assert set(counts(two.first)) == {before + 10}
    two.restart_second()
    wait_for(lambda: ready(two.second), "it is back, with the configuration that it kept")
    assert set(served_by(two.first)) == {gateway.name for gateway in two}
    infer(two.first, 20)
    wait_for(lambda: set(counts(two.first)) == {before + 30}, "both count on")


def test_queries_of_both_fronts_share_batches(two):
    two.device.tell(delay_s=2.0)
    before, known = len(two.device.reported("grant")), sum(done(two).values())
    try:
        with ThreadPoolExecutor(24) as pool:
            asked = [pool.submit(infer, two.first, 1) for _ in range(24)]
            arrived = partial(done, two, "nereus_gateway_in_flight")
            wait_for(lambda: sum(arrived().values()) >= known + 24, "all are there")
            two.device.tell(delay_s=0.0)
            for one in asked:
                one.result()
    finally:
        two.device.tell(delay_s=0.0)
    # The first batches start with what is there; behind them the queries of both wait in one queue.
    assert len(two.device.reported("grant")) - before <= 8


def test_without_a_core_the_other_says_so_in_time(two):
    two.kill_first()
    try:
        answer = two.second.infer([[1.0] * 4], latency_ms=200.0)
        assert answer.status_code == 503 and int(answer.headers["retry-after"]) >= 1
        assert "core" in answer.json()["error"]
        assert two.second.http.get("/v2/health/live").status_code == 200
        wait_for(lambda: any("core_unreachable" in line for line in two.second.log), "the log says so")
    finally:
        two.restart_first()
    wait_for(lambda: all(ready(gateway) for gateway in two), "the second found the new core")
    infer(two.first, 4)


def test_an_slo_is_no_latency_that_a_client_asked_for(gateways, devices):
    (only,) = devices("d0")
    only.warm(("numbers", "big"))
    placed = plan(1, {"d0": [("numbers", "big")]}, {"d0": only.endpoint}, row_s=0.4)
    first = gateways(config(placed, [application("numbers", 0.5, "serve")]), NEREUS_GATEWAYS="2")
    front = gateways(beside=first, number=2, NEREUS_GATEWAYS="2")
    wait_for(lambda: ready(front), "it knows the plan")
    rows = [[1.0] * 4] * 4
    for _ in range(8):
        # Each on a connection of its own, so that some are relayed.
        with httpx2.Client(base_url=front.url, timeout=60) as front.http:
            assert front.infer(rows, version="big").status_code == 200, "late, but served"
            refused = front.infer(rows, version="big", latency_ms=450.0)
        assert refused.status_code == 503 and "parameters.latency_ms: 450 is too short" in refused.json()["error"]


def test_the_second_gets_the_configuration_from_the_first(gateways, devices, control_plane):
    _, control_plane.first = one_device(devices)
    linked = {"NEREUS_GATEWAYS": "2", "NEREUS_CONTROL_URL": control_plane.url, "NEREUS_JOIN_TOKEN": "t"}
    front = gateways(beside=gateways(**linked), number=2, **linked)
    wait_for(lambda: ready(front), "it knows the plan")
    infer(front, 20)
    wait_for(lambda: sum(arrived(control_plane)) == 20, "the first reports what both counted")


def arrived(control_plane) -> list[int]:
    return [s.applications["numbers"].arrived for s in control_plane.received(control.GatewayStats) if s.applications]


def test_one_stopped_in_order_loses_no_count(two):
    before = settled(two.first)
    infer(two.first, 30)
    assert two.second.stop() == 0
    assert not two.second.admin_socket.exists()
    assert set(counts(two.first)) == {before + 30}


def test_what_arrived_in_the_last_second_before_a_stop_is_reported(gateways, devices, control_plane):
    _, control_plane.first = one_device(devices)
    gateway = gateways(None, NEREUS_CONTROL_URL=control_plane.url, NEREUS_JOIN_TOKEN="t")
    gateway.wait_ready()
    for _ in range(7):
        assert gateway.infer([[1.0] * 4] * 2).status_code == 200
    assert gateway.stop() == 0
    wait_for(lambda: control_plane.connection.protocol.close_code is not None, "its link ends")
    seconds = [report.applications["numbers"] for report in control_plane.received(control.GatewayStats)]
    assert sum(counts.arrived for counts in seconds) == sum(counts.in_time for counts in seconds) == 7


def test_a_gateway_that_stops_ends_its_link_in_order_and_one_that_dies_does_not(gateways, control_plane):
    control_plane.first = config(plan(1, {}, {}), [])
    for end, code in ((GatewayProcess.stop, 1000), (lambda gateway: gateway.process.kill(), 1006)):
        control_plane.connection = None
        gateway = gateways(None, NEREUS_CONTROL_URL=control_plane.url, NEREUS_JOIN_TOKEN="t")
        wait_for(lambda: control_plane.connection is not None, "it is linked")
        end(gateway)
        wait_for(lambda: control_plane.connection.protocol.close_code is not None, "its link ends")
        assert control_plane.connection.protocol.close_code == code
