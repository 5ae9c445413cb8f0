"""The inference clients that people have, in an environment of their own."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gateway.conftest import KEY

pytestmark = pytest.mark.wide

HERE = Path(__file__).parent / "clients"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def python() -> Path:
    """The environment's Python; made once for a list of requirements."""
    lists = [HERE / "requirements.txt", HERE / "overrides.txt"]
    digest = hashlib.sha256(b"".join(one.read_bytes() for one in lists) + sys.version.encode()).hexdigest()
    folder = ROOT / ".venv" / "clients" / digest[:12]
    folder.parent.mkdir(exist_ok=True)
    with open(folder.parent / "lock", "w") as lock:
        # Other test processes wait.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            uv = Path(sys.executable).with_name("uv")
            # MLServer takes no later one.
            known = sys.executable if sys.version_info < (3, 13) else ">=3.11,<3.13"
            subprocess.run([uv, "venv", "-q", "--no-python-downloads", "--python", known, folder], check=True)
            install = [uv, "pip", "install", "-q", "--python", folder / "bin" / "python"]
            subprocess.run([*install, "-r", lists[0], "--override", lists[1]], check=True)
            (folder / "complete").touch()
    return folder / "bin" / "python"


@pytest.mark.parametrize("script", sorted(path.stem for path in HERE.glob("*.py")))
def test_a_client_gets_what_it_asks_for(served, python, script):
    command = [python, "-W", "ignore", HERE / f"{script}.py", f"127.0.0.1:{served.port}", served.grpc, KEY]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-4000:]
