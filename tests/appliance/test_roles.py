"""``manage.py up --only``: each role of a box by itself, with a home of its own."""

from __future__ import annotations

import os
import shlex
import socket

import httpx2
import pytest

from appliance.local import roles, services
from appliance.local.preconditions import StartError, check_ports, cpu_devices
from appliance.local.roles import ALL, BoxRole
from tests.forked import of_commands
from tests.running import RunningAppliance, eventually, register, v2_request
from tools.child import READY, free_ports
from workers import topology
from workers.node import devices, division
from workers.settings import Settings, SettingsError

pytestmark = pytest.mark.wide


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
    done = of_commands().run("manage.py", "up", *arguments, env={"NEREUS_HOME": str(tmp_path / "home")})
    assert done.returncode != 0
    assert says in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("only", "names"),
    [
        ("node", ["node"]),
        ("gateway", ["gateway", "gateway-2"]),
        ("gateway,node", ["node", "gateway", "gateway-2"]),
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
    console = f"127.0.0.1:{free_ports(1)[0]}"
    values = settings(tmp_path, CONSOLE=console, EXECUTORS="0.0.0.0:65535", CPU_DEVICES="1x1", GPU="0")
    check_ports(values, 0.0, roles.parse("control"))
    tight = settings(tmp_path, EXECUTORS="0.0.0.0:65535", GPU="0")
    object.__setattr__(tight, "cpu_devices", "2x1")
    with pytest.raises(SettingsError, match="65535 is the last"):
        check_ports(tight, 0.0, roles.parse("node"))


def join_command(control: RunningAppliance, *arguments: str) -> str:
    done = of_commands().run("manage.py", "join", *arguments, env=control.environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def boxes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("roles")
    environment = {"NEREUS_PLAN_PERIOD_S": "5", "NEREUS_TLS": "on"}
    control = RunningAppliance(folder / "control", "--only", "control", environment=environment)
    gateway = RunningAppliance(folder / "gateway", "--only", "gateway")
    node = RunningAppliance(folder / "node", "--only", "node")
    running = [control, gateway, node]
    try:
        control.start()
        for role, member in (("gateway", gateway), ("node", node)):
            line = join_command(control, role, "--control", control.console).splitlines()[-1]
            *assignments, make, verb, chosen = shlex.split(line)
            assert (make, verb, chosen) == ("make", "run", f"ROLE={role}")
            member.environment.update(one.split("=", 1) for one in assignments)
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
    with httpx2.Client(base_url=gateway.http, headers=key, timeout=60) as client:
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
    assert services_of == [{"redis", "prepare", "web", "celery", "planning", "simulation"}, {"gateway"}, {"node"}]
    for member in (gateway, node):
        made = {path.name for path in member.home.iterdir()}
        assert made <= {"lock", "logs", "members", "run", "cache"}, "no secrets, no database, no certificates"
    assert {path.name for path in control.home.iterdir()}.isdisjoint({"members", "cache"})
    refused = RunningAppliance(gateway.home, "--only", "node", environment=gateway.environment)
    with pytest.raises(RuntimeError, match="roles that share a home run in one process"):
        refused.start()


def test_members_join_by_the_line_of_join_command_which_works_once(boxes):
    control, gateway, node = boxes
    with control.rest() as client:
        tokens = client.get("/join-tokens/").json()["results"]
    made = {token["kind"]: token for token in tokens if token["name"].startswith("join-")}
    assert {kind: (token["uses"], token["used"]) for kind, token in made.items()} == {"node": (1, 1), "gateway": (1, 1)}
    for member in (gateway, node):
        assert (member.home / "members" / "control-authority.pem").exists()
        assert not member.events("link_refused")
    other = RunningAppliance(
        node.home.parent / "other",
        "--only",
        "node",
        environment={
            name: node.environment[name]
            for name in ("NEREUS_CONTROL_URL", "NEREUS_CONTROL_FINGERPRINT", "NEREUS_JOIN_TOKEN")
        }
        | {"NEREUS_NODE_NAME": "other"},
    )
    try:
        other.start()
        other.wait_for(f"Node other is not admitted by {control.console}")
    finally:
        other.stop()


def test_join_command_explains_what_it_cannot_do(boxes):
    control, *_ = boxes

    def refused(*arguments: str) -> str:
        done = of_commands().run("manage.py", "join", *arguments, env=control.environment)
        assert done.returncode != 0 and "Traceback" not in done.stderr, done.stderr
        return done.stderr

    port = control.console.rpartition(":")[2]
    said = refused("node")
    assert f"NEREUS_CONSOLE=127.0.0.1:{port}: other boxes cannot reach this console" in said
    assert f"NEREUS_CONSOLE=0.0.0.0:{port}" in said and "--control URL" in said
    assert "greater than or equal to 1" in refused("node", "--minutes", "0")
    assert "invalid choice: 'control'" in refused("control")
    assert "must be http(s)://HOST" in refused("node", "--control", "https://box/console")
    assert "must be https://" in refused("node", "--control", "http://10.0.0.5:8080")
    wrong = join_command(control, "node", "--control", f"https://127.1:{port}", "--minutes", "2")
    assert "Warning: the other box will not trust" in wrong and "NEREUS_ALLOWED_HOSTS" in wrong


def test_a_role_that_stops_leaves_the_others_alone(boxes):
    control, gateway, node = boxes
    node.stop()
    assert node.process.returncode == 0 and not node.group_members()
    assert len(gateway.group_members()) >= 2 and len(control.group_members()) >= 6
    node.output = ""
    node.start()
    node.wait_for("Node box joined " + control.console)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_all_cores_are_devices_unless_it_is_the_demo_or_the_operator_says_otherwise(tmp_path, monkeypatch):
    monkeypatch.delenv("NEREUS_CPU_DEVICES", raising=False)
    values = settings(tmp_path)
    spec, line = cpu_devices(values, ALL, demo=False)
    found = division.divide(topology.read(), keep=True)
    assert line == division.summary(found, "control and gateway")
    assert tuple(one.cores for one in devices.find(settings(tmp_path, CPU_DEVICES=spec, GPU="0"))) == found.devices
    assert cpu_devices(values, roles.parse("node"), demo=False)[1] == division.summary(
        division.divide(topology.read(), keep=False), ""
    )
    assert cpu_devices(values, ALL, demo=True) == ("2x1", "")
    assert cpu_devices(values, roles.parse("control"), demo=False) == ("auto", "")
    assert cpu_devices(settings(tmp_path, CPU_DEVICES="1x1"), ALL, demo=False) == ("1x1", "")
