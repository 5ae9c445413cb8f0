"""Members of the release before join the present control plane.

They serve beside present ones, as in an upgrade.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.running import ROOT, RunningAppliance, bare_environment, eventually, free_ports, register, v2_request

pytestmark = pytest.mark.wide

#: the last commit before boxes could run parts of the appliance alone
PREVIOUS = "df0a871"


def known(commit: str) -> bool:
    done = subprocess.run(["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=ROOT, capture_output=True)
    return done.returncode == 0


@pytest.fixture(scope="module")
def earlier(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("earlier")
    archive = subprocess.run(["git", "archive", PREVIOUS], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-C", str(folder), "-x"], input=archive.stdout, check=True)
    # It has requests sent by the package that httpx2 took over from.
    (folder / "httpx.py").write_text("import sys\nimport httpx2\nsys.modules[__name__] = httpx2\n")
    return folder


class Member:
    def __init__(self, kind: str, root: Path, home: Path, control: RunningAppliance, token: str, cores: str = "0"):
        http, grpc, node, console = free_ports(4)
        self.url = f"http://127.0.0.1:{http}"
        self.home = home
        environment = bare_environment() | {
            "NEREUS_HOME": str(home),
            "NEREUS_CONTROL_URL": control.console,
            "NEREUS_JOIN_TOKEN": token,
            "NEREUS_NODE_NAME": home.name,
            "NEREUS_CONSOLE": f"127.0.0.1:{console}",
            "NEREUS_HTTP": f"127.0.0.1:{http}",
            "NEREUS_GRPC": f"127.0.0.1:{grpc}",
            "NEREUS_NODE_HTTP": f"127.0.0.1:{node}",
            "NEREUS_CPU_DEVICES": cores,
        }
        home.mkdir()
        self.log = (home / "output").open("wb")
        command = [sys.executable, "-m", f"workers.{kind}"]
        self.process = subprocess.Popen(command, cwd=root, env=environment, stdout=self.log, stderr=self.log)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(180)
        self.log.close()


def answered(member: Member, key: str) -> bool:
    with contextlib.suppress(httpx2.TransportError):
        headers = {"Authorization": f"Bearer {key}"}
        url = f"{member.url}/v2/models/tiny/infer"
        return httpx2.post(url, json=v2_request(), headers=headers, timeout=120).status_code == 200
    return False


@pytest.mark.skipif(
    not known(PREVIOUS) or shutil.which("git") is None, reason=f"commit {PREVIOUS} is not in this checkout"
)
def test_members_of_the_release_before_serve_with_present_ones(tmp_path, tiny_models, earlier):
    """Each pair of a node and a gateway, with the present control plane."""
    # Names on sockets must be short.
    control = RunningAppliance(tmp_path / "control", "--only", "control", environment={"NEREUS_PLAN_PERIOD_S": "5"})
    members: list[Member] = []
    try:
        control.start()
        with control.rest() as client:
            wanted = {"name": "upgrade", "auto_approve": True, "uses": 5}
            token = client.post("/join-tokens/", json=wanted).json()["token"]
            key = client.post("/api-keys/", json={"name": "client"}).json()["key"]

            def join(kind: str, root: Path, name: str, cores: str = "0") -> Member:
                members.append(Member(kind, root, tmp_path / name, control, token, cores))
                listed = f"/{kind}s/{name}-gateway/" if kind == "gateway" else f"/{kind}s/{name}/"
                eventually(lambda: client.get(listed).json().get("connected"), why=f"{name} has joined")
                return members[-1]

            old_node = join("node", earlier, "old-n")
            old_gateway = join("gateway", earlier, "old-g")
            new_gateway = join("gateway", ROOT, "new-g")
            register(client, "tiny", {"quick": tiny_models["quick"]}, late="serve")
            for gateway in (old_gateway, new_gateway):
                eventually(lambda gateway=gateway: answered(gateway, key), why="a query is answered by the old node")

            # A present device has one core: gateways are upgraded before nodes, so that they need not share it.
            new_gateway.stop()
            join("node", ROOT, "new-n", "1")
            eventually(lambda: client.post("/nodes/old-n/cordon/").is_success, why="the new node can do its work")
            eventually(lambda: client.get("/nodes/old-n/").json()["drained"], why="the old node is drained")
            old_node.stop()
            eventually(lambda: answered(old_gateway, key), why="the old gateway has an answer of the new node")
            old_gateway.stop()
            newer_gateway = join("gateway", ROOT, "newer-g")
            eventually(lambda: answered(newer_gateway, key), why="a query is answered by the new node")
    finally:
        for member in members:
            if member.process.poll() is None:
                member.stop()
            print((member.home / "output").read_text()[-3000:])
        control.stop()
        print(control.log()[-5000:])
