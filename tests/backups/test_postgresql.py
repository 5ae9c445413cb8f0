"""A PostgreSQL database: backed up and restored while others write, gone and back."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backups.test_backup import CHANGE, FILL, NAMES, Home
from tests.running import eventually, free_ports


def program(name: str) -> str:
    """One of PostgreSQL's programs; empty: it is not installed. Debian keeps most of them out of PATH."""
    return shutil.which(name) or str(max(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), default=""))


pytestmark = pytest.mark.skipif(not program("initdb"), reason="PostgreSQL is not installed")


class Server:
    """A private PostgreSQL server, run by a user that is not root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.port,) = free_ports(1)
        self.url = f"postgresql://nereus:word@127.0.0.1:{self.port}/nereus"
        self._user = {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid} if os.getuid() == 0 else {}
        if self._user:
            shutil.chown(folder, "nobody")
        password = folder / "password"
        password.write_text("word\n")
        password.chmod(0o644)
        self._do("initdb", "-D", str(folder / "data"), "-U", "nereus", "-A", "scram-sha-256", f"--pwfile={password}")
        self.start()
        environment = {**os.environ, "PGPASSWORD": "word"}
        self._do("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "nereus", "nereus", env=environment)

    def _do(self, name: str, *arguments: str, **more) -> None:
        # Not captured by pipes: the server that pg_ctl starts would keep them open.
        with (self.folder / "output").open("ab") as output:
            command = [program(name), *arguments]
            subprocess.run(command, check=True, cwd=self.folder, stdout=output, stderr=output, **self._user, **more)

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._do("pg_ctl", "-D", str(self.folder / "data"), "-w", "-t", "120", "-o", options, "start")

    def stop(self) -> None:
        self._do("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    # Below /tmp, whose folders above are open to the server's user.
    folder = Path(tempfile.mkdtemp(prefix="np-"))
    made = Server(folder)
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def home(server, tmp_path) -> Home:
    return Home(tmp_path / "home", NEREUS_DATABASE_URL=server.url)


GONE_AND_BACK = """
import asyncio, subprocess, sys
from django.db import DatabaseError
from registry.models import Node
from scheduler.members import standing
from scheduler.members.configurations import in_thread
node = Node.objects.create(name="box", state="approved", channel="c")
async def seen():
    try:
        await in_thread(standing.seen)(Node, node.pk, "c")
    except DatabaseError as error:
        return "database"
    except Exception as error:
        return "redis"
async def main():
    found = []
    for line in sys.stdin:
        found.append(await seen())
        print("seen", found[-1], flush=True)
asyncio.run(main())
"""


def test_backup_and_restore_and_a_server_that_is_gone_and_back(server, home, tmp_path):
    home.python(FILL)
    file = tmp_path / "backup.tar"
    home.run("backup", str(file))
    with tarfile.open(file) as tar:
        assert "database.dump" in tar.getnames() and sum(name.startswith("models/") for name in tar.getnames()) == 1
    assert home.python(CHANGE + NAMES).split() == ["later"]
    home.run("restore", str(file))
    assert home.python(NAMES).split() == ["kept"]
    assert [path.read_bytes() for path in (home.folder / "models").glob("??/*")] == [b"a model"]

    with home.process("shell", "-v", "0", "-c", GONE_AND_BACK) as process:

        def seen() -> str:
            process.stdin.write("\n")
            process.stdin.flush()
            return process.stdout.readline().split()[-1]

        # No Redis runs here: it is asked only after the database took the row.
        assert seen() == "redis"
        server.stop()
        try:
            assert seen() == "database"
        finally:
            server.start()
        eventually(lambda: seen() == "redis", why="the database back")


LONGEST = """
from registry import members
from registry.models import Device, JoinToken, Node
from scheduler.members import admission, devices
from scheduler.members.peers import Peer
from workers.protocol import control
from workers.protocol.specs import DeviceInfo, DeviceState
one = JoinToken.objects.create(name="one", token_hash="1" * 64, auto_approve=True)
other = JoinToken.objects.create(name="other", token_hash="2" * 64, uses=1)
peer = Peer("f" * 45)
name, machine = "n" * 63, "m" * 64
join = control.JoinNode(
    name=name,
    machine=machine,
    devices=(
        DeviceInfo(
            f"{name}/".ljust(120, "d"), "cuda", "t" * 120, "d" * 200, tuple(range(10_000)), 2**31 - 1, 2**53, "e" * 200
        ),
    ),
)
join = control.decode_from_node(control.encode(join))
node = admission.admit(Node, admission.Identity(None, one, peer), name, "c" * 200, join.machine).member
assert admission.issue_credential(node, peer)
devices.sync(node, join.devices)
states = control.DeviceStates(
    devices=(DeviceState(join.devices[0].id, "draining", 2**53, tuple([2**53] * 10_000), "x\\0" * 10_000),)
)
devices.report(node, control.decode_from_node(control.encode(states)).devices)
device = Device.objects.get()
assert device.plan_version == 2**53 and len(device.detail) == 2000 and len(device.type) == 120
Node.objects.update(channel="")
claim = admission.admit(Node, admission.Identity(None, other, peer), name, "d" * 200, machine)
assert claim.claims
members.accept_claim(node)
node.refresh_from_db()
assert node.channel == "d" * 200 and not node.credential_hash
print("stored")
"""


def test_the_longest_values_that_members_may_send_can_be_stored(home):
    home.run("migrate", "-v", "0")
    # Its log says that no Redis runs here.
    assert "stored" in home.python(LONGEST).split()
