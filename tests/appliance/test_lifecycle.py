"""Starting, stopping, being killed, and starting again: nothing stays behind, and nothing is forgotten."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import websockets

from tests.forked import of_commands
from tests.running import RunningAppliance, eventually, register, v2_request
from tools.child import READY, SERVING


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("lifecycle") / "home"


def manage(appliance: RunningAppliance, *arguments: str) -> None:
    done = of_commands().run("manage.py", *arguments, env=appliance.environment)
    assert done.returncode == 0, done.stderr


def gone(appliance: RunningAppliance) -> None:
    eventually(lambda: not appliance.group_members(), why="no process left")
    assert appliance.ports_open() == []
    assert list((appliance.home / "run").glob("*.sock")) == []


def test_ctrl_c_ends_everything_in_order_with_connections_open(home, tiny_models):
    appliance = RunningAppliance(home).start()
    with appliance.rest() as client:
        register(client, "kept", {"quick": tiny_models["quick"]}, late="serve")
    holding = threading.Thread(target=lambda: asyncio.run(_hold_websocket(appliance)), daemon=True)
    holding.start()
    assert len(appliance.group_members()) >= 9
    manage(appliance, "backup", str(home.parent / "backup.tar"))
    appliance.stop(signal.SIGINT)
    assert appliance.process.returncode == 0, appliance.output
    gone(appliance)
    order = [line["service"] for line in appliance.events("service_stopped")]
    rank = {name: i for i, name in enumerate(order)}
    assert rank["gateway"] < rank["node"] < min(rank["celery"], rank["planning"])
    assert max(rank["celery"], rank["planning"]) < rank["web"] < rank["redis"]
    assert "Traceback" not in appliance.log()


async def _hold_websocket(appliance: RunningAppliance) -> None:
    url = appliance.console.replace("http", "ws") + "/ws/node/"
    token = appliance.credentials["join_token"]
    async with websockets.connect(url, additional_headers={"Authorization": f"Bearer {token}"}) as socket:
        await socket.wait_closed()


def _spooled_in(appliance: RunningAppliance, folder: Path) -> None:
    workers = psutil.Process(appliance.pid("web")).children()
    with socket.create_connection(("127.0.0.1", urlsplit(appliance.console).port), 60) as upload:
        upload.sendall(
            b"POST /api/v1/applications/kept/variants/ HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            b"content-type: application/octet-stream\r\ncontent-length: 16777216\r\n"
            b"authorization: Bearer %s\r\n\r\n" % appliance.credentials["api_token"].encode() + bytes(8 * 2**20)
        )
        eventually(
            lambda: any(file.startswith(f"{folder}/") for worker in workers for file in _open_files(worker.pid)),
            why="spooled on the appliance's disk",
        )


def _open_files(pid: int) -> list[str]:
    found = []
    for link in list(Path(f"/proc/{pid}/fd").iterdir()):
        # Closed since they were listed.
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(link))
    return found


def test_the_second_start_remembers_everything_and_serves_without_a_usable_database(home):
    """Once the database is repaired the console comes up by itself."""
    appliance = RunningAppliance(home)
    before, held = appliance.credentials, int((home / "plan_version").read_text())
    left = home / "tmp" / "left"
    left.write_bytes(b"of an upload that a kill cut off")
    database = home / "nereus.sqlite3"
    whole = database.read_bytes()
    for rest in home.glob("nereus.sqlite3-*"):
        rest.unlink()
    database.write_bytes(b"This is no database. " * 1000)
    # As a power cut leaves files that were not written through.
    (home / "secret_key").write_bytes(b"")
    appliance.start(until=SERVING)
    try:
        gateway = appliance.pid("gateway")
        with appliance.inference() as client:
            eventually(lambda: client.get("/v2/health/ready").status_code == 200, why="ready from what is on disk")
            assert client.post("/v2/models/kept/infer", json=v2_request()).status_code == 200
            appliance.wait_for("prepare: the database cannot be used: DatabaseError: file is not a database")
            assert client.post("/v2/models/kept/infer", json=v2_request()).status_code == 200
        assert "Console" not in appliance.output
        database.write_bytes(whole)
        appliance.wait_for(READY)
        with appliance.rest() as client:
            assert client.get("/applications/kept/").status_code == 200
        assert appliance.pid("gateway") == gateway, "nothing that serves was restarted"
        assert appliance.credentials == before
        assert before["console_password"] not in appliance.output
        assert not left.exists()
        eventually(lambda: int((home / "plan_version").read_text()) > held, why="a newer plan than the backup has")
        _spooled_in(appliance, home / "tmp")
    finally:
        appliance.stop()
    gone(appliance)


class Restored(RunningAppliance):
    """A start from the first one's backup, with secrets that are newer or broken."""

    def __init__(self, home: Path):
        super().__init__(home)
        self.before, self.held = self.credentials, int((home / "plan_version").read_text())
        manage(self, "restore", str(home.parent / "backup.tar"))
        (home / "credentials.json").write_bytes(b"")
        found = (home / "members").glob("node-*.json")
        (self.node,) = [path for path in found if not path.name.endswith("-config.json")]
        self.node.write_text(json.dumps(json.loads(self.node.read_text()) | {"credential": "newer"}))


@pytest.fixture(scope="module")
def restored(home):
    appliance = Restored(home)
    try:
        yield appliance.start()
    finally:
        appliance.stop()


def test_members_follow_newer_plans_after_a_restore(restored):
    eventually(lambda: json.loads(restored.node.read_text())["credential"] != "newer", why="the node joined anew")
    received = lambda: [line["version"] for line in restored.events("plan_received")]  # noqa: E731
    eventually(lambda: received()[-1] > restored.held, why="plans above those that members held")
    with restored.rest() as client:
        devices = lambda: client.get("/devices/").json()["results"]  # noqa: E731
        eventually(lambda: {device["state"] for device in devices()} == {"up"}, why="devices up")


def test_credentials_that_a_power_cut_broke_replace_nothing(restored):
    after = restored.credentials
    assert after["console_user"] == "admin-2" and after["console_password"] in restored.output
    with restored.inference() as client:
        for key in (restored.before["api_key"], after["api_key"]):
            client.headers["Authorization"] = f"Bearer {key}"
            eventually(
                lambda: client.post("/v2/models/kept/infer", json=v2_request()).status_code == 200,
                why="keys of before and after work",
            )


def test_a_second_appliance_in_the_same_home_is_refused(restored):
    second = of_commands().run("manage.py", "up", env=restored.environment)
    assert second.returncode != 0 and f"another appliance (process {restored.process.pid})" in second.stderr
    restored.process.kill()
    restored.process.wait()
    eventually(lambda: not restored.group_members(), why="no process left after kill -9")
    assert restored.ports_open() == []
