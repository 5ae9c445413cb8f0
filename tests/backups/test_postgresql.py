"""A PostgreSQL database: backed up and restored while others write, gone and back."""

from __future__ import annotations

import tarfile

import pytest

from tests import postgresql
from tests.backups.test_backup import CHANGE, FILL, NAMES, Home
from tests.running import eventually

pytestmark = [pytest.mark.wide, postgresql.needed]


@pytest.fixture
def home(tmp_path) -> Home:
    return Home(tmp_path / "home", NEREUS_DATABASE_URL=postgresql.database())


GONE_AND_BACK = """
import asyncio, subprocess, sys
from django.db import DatabaseError
from redis.exceptions import RedisError
from registry.models import Node
from scheduler.members import standing
from scheduler.members.configurations import in_thread
node = Node.objects.create(name="box", state="approved", channel="c")
async def seen():
    try:
        await in_thread(standing.seen_all)([(Node, node.pk, "c")])
    except DatabaseError as error:
        return "database"
    except RedisError as error:
        return "redis"
async def main():
    found = []
    for line in sys.stdin:
        found.append(await seen())
        print("seen", found[-1], flush=True)
asyncio.run(main())
"""


def test_backup_and_restore_and_a_server_that_is_gone_and_back(home, tmp_path):
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
        postgresql.server().stop()
        try:
            assert seen() == "database"
        finally:
            postgresql.server().start()
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
    # Its log says that no Redis runs here.
    assert "stored" in home.python(LONGEST).split()


POOLED = """
import threading
from django.db import close_old_connections, connection
pids = []
def ask():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pids.append(cursor.fetchone()[0])
    close_old_connections()
def threads(count):
    # As requests under ASGI: each has a thread of its own.
    for _ in range(count):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
threads(20)
print("backends", len(set(pids)), flush=True)
input()
pids.clear()
threads(20)
print("answered", len(pids), flush=True)
"""


def test_threads_share_connections_and_none_of_them_meets_a_server_that_restarted(home):
    with home.process("shell", "-v", "0", "-c", POOLED) as process:
        assert process.stdout.readline().split() == ["backends", "1"]
        postgresql.server().stop()
        postgresql.server().start()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline().split() == ["answered", "20"]
