"""A private PostgreSQL server a process of tests, and databases of it."""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.forked import of_commands
from tests.running import bare_environment, free_ports

MIGRATED = "migrated"
#: for a subprocess: a user that is not root
USER = {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []} if os.getuid() == 0 else {}


def program(name: str) -> str:
    """The path of one of PostgreSQL's programs, which Debian keeps out of PATH; empty: not installed."""
    return shutil.which(name) or str(max(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), default=""))


needed = pytest.mark.skipif(not program("initdb"), reason="PostgreSQL is not installed")


class Server:
    """A server that is run by a user that is not root, in a folder below /tmp, whose folders are open to that user."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="np-"))
        (self.port,) = free_ports(1)
        if USER:
            shutil.chown(self.folder, "nobody")
        password = self.folder / "password"
        password.write_text("word\n")
        password.chmod(0o644)
        data = str(self.folder / "data")
        self._do("initdb", "-N", "-D", data, "-U", "nereus", "-A", "scram-sha-256", f"--pwfile={password}")
        self.start()
        atexit.register(self._end)

    def _do(self, name: str, *arguments: str, **more) -> None:
        # Not captured by pipes: the server that pg_ctl starts would keep them open.
        with (self.folder / "output").open("ab") as output:
            command = [program(name), *arguments]
            subprocess.run(command, check=True, cwd=self.folder, stdout=output, stderr=output, **USER, **more)

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._do("pg_ctl", "-D", str(self.folder / "data"), "-w", "-t", "120", "-o", options, "start")

    def stop(self) -> None:
        self._do("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")

    def _end(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def create(self, name: str, template: str = "template0") -> str:
        where = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "nereus")
        self._do("createdb", *where, "-T", template, name, env={**os.environ, "PGPASSWORD": "word"})
        return f"postgresql://nereus:word@127.0.0.1:{self.port}/{name}"


@functools.cache
def server() -> Server:
    return Server()


@functools.cache
def _template() -> str:
    kept = bare_environment()
    with tempfile.TemporaryDirectory() as home:
        settings = {"NEREUS_HOME": home, "NEREUS_DATABASE_URL": server().create(MIGRATED)}
        done = of_commands().run("manage.py", "migrate", "-v", "0", env=kept | settings)
    assert done.returncode == 0, done.stderr[-3000:]
    return MIGRATED


_numbers = itertools.count(1)


def database(migrated: bool = True) -> str:
    """The URL of a new database, which has no tables unless it is ``migrated``."""
    return server().create(f"nereus_{next(_numbers)}", _template() if migrated else "template0")
