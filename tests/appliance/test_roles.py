"""``manage.py up --only``: each role of a box by itself, with a home of its own."""

from __future__ import annotations

import socket
import subprocess
import sys

import httpx
import pytest

from appliance.local import roles, services
from appliance.local.child import READY, free_ports
from appliance.local.preconditions import StartError, check_ports
from appliance.local.roles import ALL, BoxRole
from tests.running import ROOT, RunningAppliance, eventually, register, v2_request
from workers.settings import Settings, SettingsError


def settings(home, **variables: str) -> Settings:
    return Settings.from_environ({"NEREUS_HOME": str(home)} | {f"NEREUS_{k}": v for k, v in variables.items()})


def test_roles_are_read_and_named():
    assert roles.parse("control") == {BoxRole.CONTROL}
    assert roles.parse(" node, gateway,node") == {BoxRole.GATEWAY, BoxRole.NODE}
    assert roles.named(ALL) == "control, gateway and node"
    assert roles.named(roles.parse("node")) == "node"
    for text in ("nod", "node,all", "", ","):
        with pytest.raises(ValueError, match="roles are control, gateway, node"):
            roles.parse(text)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--only", "control,nodes"], "argument --only: nodes: no such role; roles are control, gateway, node"),
        (["--only", "node", "--demo"], "--demo registers applications and sends them a load, which needs all roles"),
    ],
)
def test_wrong_roles_end_the_start(tmp_path, arguments, says):
    done = subprocess.run(
        [sys.executable, "manage.py", "up", *arguments],
        cwd=ROOT,
        env={"NEREUS_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode != 0
    assert says in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("only", "names"),
    [
        ("node", ["node"]),
        ("gateway", ["gateway-core", "gateway", "gateway-2"]),
        ("gateway,node", ["node", "gateway-core", "gateway", "gateway-2"]),
        ("control", []),
    ],
)
def test_each_role_has_its_own_processes_in_the_data_plane(tmp_path, only, names):
    values = settings(tmp_path, GATEWAYS="2")
    found = services.data_plane(values, tmp_path / "log", roles.parse(only))
    assert [service.name for service in found] == names


def test_each_role_has_its_own_ports(tmp_path):
    values = settings(tmp_path, CONTROL_URL="https://10.0.0.5:8080")

    def names(only: str) -> list[str]:
        return [f"{name} {address}" for name, address in roles.listening(values, roles.parse(only), 2)]

    assert names("control") == ["CONSOLE 127.0.0.1:8080"]
    assert names("gateway") == ["HTTP 127.0.0.1:8000", "GRPC 127.0.0.1:8001", "CORE 0.0.0.0:8002"]
    assert names("node") == ["NODE_HTTP 127.0.0.1:8090", "EXECUTORS 0.0.0.0:8100", "EXECUTORS 0.0.0.0:8101"]


def test_a_port_counts_where_the_role_that_uses_it_runs(tmp_path):
    ports = free_ports(5)
    http, grpc, core, console, node = (f"127.0.0.1:{port}" for port in ports)
    executors = next(port for port in free_ports(50) if all(abs(port - other) > 3 for other in ports))
    values = settings(
        tmp_path,
        HTTP=http,
        GRPC=grpc,
        CORE=core,
        CONSOLE=console,
        NODE_HTTP=node,
        EXECUTORS=f"127.0.0.1:{executors}",
        CPU_DEVICES="1x1",
        GPU="0",
    )
    with socket.create_server(("127.0.0.1", ports[2])), socket.create_server(("127.0.0.1", executors)):
        check_ports(values, 0.0, roles.parse("control"))
        with pytest.raises(StartError, match=f"NEREUS_CORE={core}: another program listens there"):
            check_ports(values, 0.0, roles.parse("gateway"))
        with pytest.raises(StartError, match=f"NEREUS_EXECUTORS=127.0.0.1:{executors}: another program"):
            check_ports(values, 0.0, roles.parse("node"))


def test_a_whole_box_finds_executors_in_the_way_of_another_port(tmp_path):
    values = settings(tmp_path, EXECUTORS="0.0.0.0:65535", CPU_DEVICES="1x1", GPU="0")
    check_ports(values, 0.0, roles.parse("control"))
    tight = settings(tmp_path, EXECUTORS="0.0.0.0:65535", GPU="0")
    object.__setattr__(tight, "cpu_devices", "2x1")
    with pytest.raises(SettingsError, match="65535 is the last"):
        check_ports(tight, 0.0, roles.parse("node"))


@pytest.fixture(scope="module")
def boxes(tmp_path_factory):
    """Homes of the three roles, on one machine, side by side."""
    folder = tmp_path_factory.mktemp("roles")
    control = RunningAppliance(folder / "control", "--only", "control", environment={"NEREUS_PLAN_PERIOD_S": "5"})
    members = {"NEREUS_CONTROL_URL": control.console}
    gateway = RunningAppliance(folder / "gateway", "--only", "gateway", environment=members)
    node = RunningAppliance(folder / "node", "--only", "node", environment=members)
    running = [control, gateway, node]
    try:
        control.start()
        for member in (gateway, node):
            member.environment["NEREUS_JOIN_TOKEN"] = control.credentials["join_token"]
            member.start()
        yield running
    finally:
        for one in reversed(running):
            one.stop()
            print(one.output, one.log()[-5000:])


def test_roles_with_homes_of_their_own_serve_together(boxes, tiny_models):
    control, gateway, node = boxes
    gateway.wait_for("Gateway box-gateway joined " + control.console)
    node.wait_for("Node box joined " + control.console)
    with control.rest() as client:
        register(client, "tiny", {"quick": tiny_models["quick"]}, late="serve")
        devices = client.get("/devices/").json()["results"]
        assert devices and all(device["gateways"] == ["box-gateway"] for device in devices)
    gateway.wait_for(READY)
    key = {"Authorization": f"Bearer {control.credentials['api_key']}"}
    with httpx.Client(base_url=gateway.http, headers=key, timeout=60) as client:
        eventually(lambda: client.get("/v2/models/tiny/ready").status_code == 200, why="tiny ready to serve")
        assert client.post("/v2/models/tiny/infer", json=v2_request()).status_code == 200


def test_a_role_makes_and_says_what_it_needs_and_nothing_else(boxes):
    control, gateway, node = boxes
    assert (
        "Console " in control.read()
        and "Inference" not in control.output
        and "Nereus starts as control" in control.output
    )
    assert "Inference" in gateway.read() and "Console" not in gateway.output
    assert "Serving after" in node.read() and "Console" not in node.output and "Inference" not in node.output
    services_of = [{line["service"] for line in one.events("service_started")} for one in boxes]
    assert services_of == [{"redis", "prepare", "web", "celery", "planning", "beat"}, {"gateway"}, {"node"}]
    for member in (gateway, node):
        made = {path.name for path in member.home.iterdir()}
        assert made <= {"lock", "logs", "members", "run", "cache"}, "no secrets, no database, no certificates"
    assert {path.name for path in control.home.iterdir()}.isdisjoint({"members", "cache", "tls"})
    refused = RunningAppliance(gateway.home, "--only", "node", environment=gateway.environment)
    with pytest.raises(RuntimeError, match="roles that share a home run in one process"):
        refused.start()


def test_a_role_that_stops_leaves_the_others_alone(boxes):
    control, gateway, node = boxes
    node.stop()
    assert node.process.returncode == 0 and not node.group_members()
    assert len(gateway.group_members()) >= 2 and len(control.group_members()) >= 6
    node.output = ""
    node.start()
    node.wait_for("Node box joined " + control.console)
