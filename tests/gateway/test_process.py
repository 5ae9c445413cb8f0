"""The gateway as a process: its life, its settings and its configuration."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
import socket
import stat
import subprocess
import sys
import time
from collections import Counter

import msgspec
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tests.running import bare_environment, free_ports
from tools.waiting import eventually, eventually_async
from workers.protocol import control
from workers.protocol.specs import Band

from .conftest import KEY, GatewayProcess, application, config, one_device, plan, wait_for
from .test_failures import BODY, PATH, X, load, start


def joined(gateways, control_plane, **settings) -> GatewayProcess:
    gateway = gateways(None, NEREUS_CONTROL_URL=control_plane.url, NEREUS_JOIN_TOKEN="t", **settings)
    wait_for(lambda: control_plane.connection, "the gateway joined")
    return gateway


async def test_plan_changes_under_load_fail_no_query(gateways, devices, control_plane):
    first, second = devices("d0", "d1")
    endpoints = {"d0": first.endpoint, "d1": second.endpoint}
    applications = [application("numbers", 60.0)]
    control_plane.first = config(plan(1, {"d0": [("numbers", "big")], "d1": []}, endpoints), applications)
    first.warm(("numbers", "big"))
    second.warm()
    gateway = joined(gateways, control_plane)
    gateway.wait_ready()

    async def change(found) -> None:
        await eventually_async(lambda: found[200, "d0", "big"])
        # The new device warms up only after the plan is known, and the old one forgets once it is notified.
        control_plane.send(config(plan(2, {"d0": [], "d1": [("numbers", "small")]}, endpoints), applications))
        await asyncio.sleep(0.3)
        assert {"event": "moved", "plan_version": 2} not in first.events
        second.warm(("numbers", "small"))
        await eventually_async(lambda: {"event": "moved", "plan_version": 2} in first.events)
        first.warm()
        # And to a third plan, whose device is the first again.
        await eventually_async(lambda: found[200, "d1", "small"])
        await asyncio.to_thread(eventually, lambda: not gateway.health()["devices"]["d0"]["warm"])
        control_plane.send(config(plan(3, {"d0": [("numbers", "big")]}, endpoints), applications))
        first.warm(("numbers", "big"))
        await eventually_async(lambda: {"event": "moved", "plan_version": 3} in first.events)

    found = await load(gateway, 2.4, meanwhile=change)
    assert {status for status, *_ in found} == {200}, found
    assert {(device, variant) for _, device, variant in found} == {("d0", "big"), ("d1", "small")}
    assert gateway.infer(X).json()["parameters"]["device"] == "d0"
    # A device that still owed answers when the application moved is left at the end of that second.
    plan_3 = {"adopted": 3, "newest": 3}, ["d0"]
    health = wait_for(
        lambda: ((h := gateway.health())["plan"], list(h["devices"])) == plan_3 and h, "plan 3 is adopted"
    )
    assert health["control_plane"] == "up"


def test_goes_on_and_restarts_without_the_control_plane(gateways, devices, control_plane):
    _, control_plane.first = one_device(devices, 4)
    gateway = joined(gateways, control_plane)
    gateway.wait_ready()
    wait_for(gateway.file.exists, "the configuration is stored")
    assert stat.S_IMODE(gateway.file.stat().st_mode) == 0o600
    control_plane.server.shutdown()
    control_plane.connection.close()
    wait_for(lambda: gateway.health()["control_plane"] != "up", "the link is down")
    assert gateway.infer(X).status_code == 200
    assert gateway.stop() == 0
    again = gateways(home=gateway.home)
    again.wait_ready()
    assert again.infer(X).status_code == 200
    assert again.health()["plan"] == {"adopted": 4, "newest": 4}


def test_a_configuration_that_the_release_before_stacks_saved_serves_without_the_control_plane(
    gateways, devices, tmp_path
):
    saved = json.loads(msgspec.json.encode(one_device(devices, 4)[1]))
    saved |= {"gateways": 1}
    del saved["plan"]["stack"]
    saved["plan"]["routing"] = "shares"
    saved["applications"][0]["batching"] = {"policy": "nexus", "options": {}}
    members = tmp_path / "home0" / "members"
    members.mkdir(parents=True)
    (members / "gateway-box-gateway-config.json").write_text(json.dumps(saved))
    gateway = gateways()
    gateway.wait_ready()
    assert gateway.infer(X).status_code == 200
    assert gateway.health()["plan"] == {"adopted": 4, "newest": 4}


async def test_tells_the_control_plane_that_devices_cannot_cope(gateways, devices, control_plane):
    (only,) = devices("d0")
    only.warm(("numbers", "big"))
    # One query takes most of the time that there is: two do not fit, and one does on a busy machine, too.
    made = plan(3, {"d0": [("numbers", "big")]}, {"d0": only.endpoint}, row_s=50.0)
    control_plane.first = config(made, [application("numbers", slo_s=80.0)])
    gateway = joined(gateways, control_plane)
    gateway.wait_ready()
    only.tell(delay_s=4.5)
    found = await load(gateway, 1.5, clients=8)
    assert {status for status, *_ in found} == {200, 503}
    refused = sum(count for (status, *_), count in found.items() if status == 503)
    reports = wait_for(lambda: control_plane.received(control.Overload), "an overload is reported")
    assert {(report.device, report.application) for report in reports} == {("", "numbers")}
    assert all(3 <= report.refused <= report.arrived for report in reports)
    assert sum(report.refused for report in reports) <= refused


def test_reports_each_second_which_configuration_it_holds(gateways, devices, control_plane):
    _, made = one_device(devices, 4)
    control_plane.first = control.with_hash(made)

    def reported(version: int, hash: str) -> bool:
        return any(
            (stats.plan_version, stats.config_hash) == (version, hash)
            for stats in control_plane.received(control.GatewayStats)
        )

    joined(gateways, control_plane)
    wait_for(lambda: reported(4, control_plane.first.hash), "the first configuration is reported")
    other = control.with_hash(msgspec.structs.replace(made, key_hashes=()))
    assert other.hash != control_plane.first.hash
    control_plane.send(other)
    wait_for(lambda: reported(4, other.hash), "the same plan without the key is reported")


def test_tells_what_happened_each_second_and_when_demand_bursts(gateways, devices, control_plane):
    (only,) = devices("d0")
    only.warm(("numbers", "big"))
    made = plan(9, {"d0": [("numbers", "big")]}, {"d0": only.endpoint})
    made = type(made)(made.version, made.devices, made.routes, {"numbers": Band(0.0, 5.0)})
    control_plane.first = config(made, [application("numbers"), application("words")])
    gateway = joined(gateways, control_plane)
    gateway.wait_ready()
    sent = 0
    end = time.monotonic() + 120
    # For more than a second, and until it is noticed, however slowly they follow each other.
    while sent < 25 or not control_plane.received(control.Burst):
        assert time.monotonic() < end, "a burst is reported"
        for _ in range(5):
            gateway.infer(X * 2)
        sent += 5
        time.sleep(0.2)
    bursts = control_plane.received(control.Burst)
    assert (bursts[0].application, bursts[0].plan_version) == ("numbers", 9)
    assert bursts[0].rate > 5
    gateway.post(PATH, b"{}")
    wait_for(
        lambda: sum(s.applications["numbers"].in_time for s in control_plane.received(control.GatewayStats)) == sent,
        "all queries are counted",
    )
    seconds = [s.applications["numbers"] for s in control_plane.received(control.GatewayStats)]
    assert sum(s.arrived for s in seconds) == sent
    assert sum(s.arrived_rows for s in seconds) == 2 * sent
    assert sum(s.late + s.dropped + s.failed for s in seconds) == 0
    assert sum(s.accuracy_sum for s in seconds) == pytest.approx(sent * 95.0)
    assert sum(s.normalized_sum for s in seconds) == pytest.approx(sent * 100.0)
    assert sum(s.by_variant.get("big", 0) for s in seconds) == sent
    assert any(0 < s.p50_ms <= s.p95_ms for s in seconds)
    assert all(s.applications["words"].arrived == 0 for s in control_plane.received(control.GatewayStats))
    kept = [s.slowest for s in seconds]
    assert [one is not None for one in kept] == [s.in_time > 0 for s in seconds]
    for one in filter(None, kept):
        assert (one.outcome, one.variant, one.device, one.rows, one.tries) == ("in_time", "big", "d0", 2, 1)
        assert 0 < one.latency_ms <= one.budget_ms
    assert all(s.refused is None for s in seconds)


def test_tells_which_applications_it_answers_and_keeps_a_refused_query_with_its_reason(
    gateways, devices, control_plane
):
    (only,) = devices("d0")
    only.warm()
    placed = plan(1, {"d0": [("numbers", "big")]}, {"d0": only.endpoint})
    control_plane.first = config(placed, [application("numbers"), application("words")])
    gateway = joined(gateways, control_plane)
    # Before any variant is warm.
    wait_for(lambda: "warm" in gateway.infer(X).json()["error"], "a refusal")

    def kept():
        seconds = [s.applications["numbers"] for s in control_plane.received(control.GatewayStats) if s.applications]
        return [s.refused for s in seconds if s.refused is not None]

    wait_for(kept, "the refusal is reported")
    one = kept()[0]
    assert (one.outcome, one.variant, one.rows, one.tries) == ("failed", "", 1, 0)
    assert "warm" in one.reason and one.budget_ms > 0
    assert {report.serving for report in control_plane.received(control.GatewayStats)} == {()}
    only.warm(("numbers", "big"))
    wait_for(lambda: control_plane.received(control.GatewayStats)[-1].serving == ("numbers",), "it answers numbers")
    assert gateway.infer(X).status_code == 200


def test_is_not_ready_before_it_knows_anything(gateways):
    gateway = gateways()
    response = gateway.http.get("/v2/health/ready")
    assert response.status_code == 400
    assert response.json()["error"] == "no configuration from the control plane yet"
    assert gateway.http.get("/v2/health/live").status_code == 200
    # Whether the key is good nobody can tell here: the client is to try again, not to give up.
    refused = gateway.infer(X)
    assert refused.status_code == 503 and "no configuration from the control plane yet" in refused.json()["error"]


@pytest.mark.parametrize("content", [b"", b"{", b'{"type": "gateway_config"}', b"\xff\xfe"])
def test_a_broken_configuration_on_disk_is_reported_and_left_alone(gateways, tmp_path, content):
    members = tmp_path / "home0" / "members"
    members.mkdir(parents=True)
    (members / "gateway-box-gateway-config.json").write_bytes(content)
    gateway = gateways()
    assert not gateway.ready()
    wait_for(lambda: any("config_unreadable" in line for line in gateway.log), "the log says so")


async def test_sigterm_does_not_wait_for_ever(gateways, devices):
    gateway, only = start(gateways, devices, ["d0"], slo_s=60.0)
    only.tell(mute=True)
    async with gateway.client() as http:
        waiting = asyncio.create_task(http.post(PATH, content=BODY))
        await eventually_async(lambda: only.reported("query"))
        gateway.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(gateway.process.wait, 120) == 0
        response = await waiting
        assert response.status_code == 503
        assert "the gateway is stopping" in response.json()["error"]


def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess:
    environ = bare_environment() | settings
    return subprocess.run(
        [sys.executable, "-m", "workers.gateway", *arguments], env=environ, capture_output=True, text=True, timeout=300
    )


def test_wrong_settings_are_all_named(tmp_path):
    result = run(NEREUS_HOME=str(tmp_path), NEREUS_HTTP="nowhere", NEREUS_QUEUE_ROWS="0", NEREUS_HTPP="x")
    assert result.returncode == 2
    lines = result.stderr.splitlines()
    assert [line.split("=")[0].split(":")[0] for line in lines] == ["NEREUS_HTTP", "NEREUS_QUEUE_ROWS", "NEREUS_HTPP"]


def test_a_port_in_use_is_named(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        free = f"127.0.0.1:{free_ports(1)[0]}"
        result = run(NEREUS_HOME=str(tmp_path), NEREUS_HTTP=f"127.0.0.1:{port}", NEREUS_GRPC=free)
    assert result.returncode == 1
    event = json.loads(result.stderr.splitlines()[-1])
    assert event["event"] == "cannot_listen"
    assert event["setting"] == "NEREUS_HTTP"
    assert str(port) in event["address"]


def test_the_gateway_is_lean():
    code = (
        "import sys, workers.gateway.__main__, workers.gateway.serving\n"
        "heavy = 'django rest_framework celery pyscipopt channels redis onnxruntime appliance scheduler registry'\n"
        "print([m for m in heavy.split() if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_metrics_tell_of_queries_devices_and_plan(gateways, devices):
    gateway, _ = start(gateways, devices, ["d0"])
    for _ in range(3):
        gateway.infer(X)
    gateway.post(PATH, b"{}")
    text = gateway.http.get("/metrics").text
    assert 'nereus_gateway_queries_total{application="numbers",outcome="in_time"} 3.0' in text
    assert 'nereus_gateway_invalid_requests_total{status="400"} 1.0' in text
    assert 'nereus_gateway_latency_seconds_count{application="numbers"} 3.0' in text
    assert 'nereus_gateway_outstanding{device="d0"} 0.0' in text
    assert "nereus_gateway_plan_version 1.0" in text
    assert "nereus_gateway_ready 1.0" in text
    assert "nereus_gateway_in_flight 0.0" in text


def test_reports_which_variants_and_accuracies_queries_request(gateways, devices, control_plane):
    (only,) = devices("d0")
    only.warm(("numbers", "big"), ("numbers", "small"))
    placed = plan(1, {"d0": [("numbers", "big"), ("numbers", "small")]}, {"d0": only.endpoint})
    # One of them stands by, and is found by its name, too.
    big, small = placed.devices[0].residents
    device = msgspec.structs.replace(placed.devices[0], residents=(big,), standby_residents=(small,))
    placed = msgspec.structs.replace(placed, devices=(device,))
    confined = hashlib.sha256(b"confined").hexdigest()
    made = config(placed, [application("numbers"), application("words")])
    limits = {confined: control.KeyLimits(applications=("words",))}
    control_plane.first = msgspec.structs.replace(made, key_hashes=(*made.key_hashes, confined), key_limits=limits)
    gateway = joined(gateways, control_plane)
    gateway.wait_ready()
    wait_for(lambda: gateway.infer(X, version="big").status_code == 200, "both are warm")
    assert gateway.infer(X, version="small").json()["model_version"] == "small"
    missing = gateway.infer(X, version="huge")
    assert missing.status_code == 404 and "loaded once queries name it" in missing.json()["error"]
    with triton.InferenceServerClient(gateway.grpc) as client:
        x = triton.InferInput("x", [1, 4], "FP32").set_data_from_numpy(np.array(X, np.float32))
        with pytest.raises(InferenceServerException, match="has no such variant"):
            client.infer("numbers", [x], model_version="huge", headers={"authorization": f"Bearer {KEY}"})
        # What a key may not reach, it cannot request.
        with pytest.raises(InferenceServerException) as refused:
            client.infer("numbers", [x], model_version="huge", headers={"authorization": "Bearer confined"})
        assert refused.value.status() == "StatusCode.PERMISSION_DENIED"
    assert gateway.infer(X, min_accuracy=99).status_code == 503

    def asked() -> tuple[dict[str, int], float]:
        seconds = [s.applications["numbers"] for s in control_plane.received(control.GatewayStats) if s.applications]
        named = sum((Counter(second.named) for second in seconds), Counter())
        return dict(named), max((second.least_accuracy for second in seconds), default=0.0)

    wait_for(lambda: asked()[1] == 99.0 and asked()[0].get("huge") == 2, "requests are reported")
    assert asked()[0].keys() == {"big", "small", "huge"}
    # Names are any client's: few of them are kept.
    for number in range(60):
        gateway.infer(X, version=f"nonsense-{number}")
    wait_for(lambda: len(asked()[0]) > 3, "some are reported")
    assert all(len(s.applications["numbers"].named) <= 16 for s in control_plane.received(control.GatewayStats))
