"""Starting, stopping, being killed, starting again: nothing stays behind, nothing is forgotten."""

from __future__ import annotations

import asyncio
import signal
import threading

import pytest
import websockets

from tests.running import RunningAppliance, eventually, register, v2_request


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("lifecycle") / "home"


def gone(appliance: RunningAppliance) -> None:
    eventually(lambda: not appliance.group_members(), why="no process left")
    assert appliance.ports_open() == []
    assert list((appliance.home / "run").glob("*.sock")) == []


def test_ctrl_c_ends_everything_in_order_with_connections_open(home, tiny_models):
    appliance = RunningAppliance(home).start()
    with appliance.rest() as client:
        register(client, "kept", {"quick": tiny_models["quick"]})
    holding = threading.Thread(target=lambda: asyncio.run(_hold_websocket(appliance)), daemon=True)
    holding.start()
    assert len(appliance.group_members()) >= 9
    appliance.stop(signal.SIGINT)
    assert appliance.process.returncode == 0, appliance.output
    gone(appliance)
    order = [line["service"] for line in appliance.events("service_stopped")]
    rank = {name: i for i, name in enumerate(order)}
    assert rank["gateway"] < rank["node"] < min(rank["celery"], rank["planning"], rank["beat"])
    assert max(rank["celery"], rank["planning"], rank["beat"]) < rank["web"] < rank["redis"]
    assert "Traceback" not in appliance.log()


async def _hold_websocket(appliance: RunningAppliance) -> None:
    """A member's connection that never reads or leaves by itself."""
    url = appliance.console.replace("http", "ws") + "/ws/node/"
    token = appliance.credentials["join_token"]
    async with websockets.connect(url, additional_headers={"Authorization": f"Bearer {token}"}) as socket:
        await socket.wait_closed()


def test_the_second_start_remembers_everything(home):
    appliance = RunningAppliance(home)
    appliance.environment["NEREUS_NODE_NAME"] = "box"
    before = appliance.credentials
    appliance.start()
    assert appliance.credentials == before
    with appliance.inference() as client:
        eventually(lambda: client.get("/v2/health/ready").status_code == 200, why="ready from what is remembered")
        assert client.post("/v2/models/kept/infer", json=v2_request()).status_code == 200
    appliance.stop()
    gone(appliance)


def test_a_second_appliance_in_the_same_home_is_refused(home):
    import subprocess
    import sys

    from tests.running import ROOT

    first = RunningAppliance(home).start()
    second = subprocess.run(
        [sys.executable, "manage.py", "up"],
        cwd=ROOT,
        env={**first.environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert second.returncode != 0 and "another appliance" in second.stderr
    first.process.kill()
    first.process.wait()
    gone_after_kill(first)


def gone_after_kill(appliance: RunningAppliance) -> None:
    """A supervisor killed outright takes its children along, though it could not say goodbye."""
    eventually(lambda: not appliance.group_members(), why="no process left after kill -9")
    assert appliance.ports_open() == []
