"""A private PostgreSQL server for tests, run by a user that is not root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.running import free_ports


def program(name: str) -> str:
    """Return the path of one of PostgreSQL's programs; empty: it is not installed.

    Debian keeps most of them out of PATH.
    """
    return shutil.which(name) or str(max(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), default=""))


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


@contextmanager
def running() -> Iterator[Server]:
    """Run a server for the block.

    Its folder is below /tmp, as the folders above it must be open to the server's user.
    """
    folder = Path(tempfile.mkdtemp(prefix="np-"))
    made = Server(folder)
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)
