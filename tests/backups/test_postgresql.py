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
    home.python(CHANGE)
    assert home.python(NAMES).split() == ["later"]
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
