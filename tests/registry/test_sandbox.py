"""The inspecting process: its limits hold, it is lean, and whatever becomes of it becomes a verdict."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from registry.errors import Busy, InvalidInput
from registry.inspection import sandbox
from tests.registry import graphs

ROOT = Path(__file__).resolve().parents[2]


def _confined(code: str) -> subprocess.CompletedProcess:
    program = "from registry.inspection.confinement import confine\noffline = confine(1, 400 << 20, 1 << 20)\n"
    return subprocess.run(
        [sys.executable, "-c", program + textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True, timeout=300
    )


def test_cpu_time_ends():
    assert _confined("while True: pass").returncode == -24


def test_memory_ends():
    assert "MemoryError" in _confined("bytearray(1 << 30)").stderr


def test_files_cannot_grow(tmp_path):
    target = tmp_path / "grown"
    assert _confined(f"open({str(target)!r}, 'wb').write(bytes(2 << 20))").returncode != 0
    assert target.stat().st_size <= 1 << 20


def test_the_network_is_out_of_reach_where_the_kernel_allows():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = _confined(f"""
            import socket
            try:
                socket.create_connection(("127.0.0.1", {port}), 5)
                reached = True
            except OSError:
                reached = False
            print(offline, reached)
        """)
    assert done.stdout.strip() in ("True False", "False True")


def test_the_priority_is_the_lowest():
    assert int(_confined("import os; print(os.nice(0))").stdout) >= min(19, os.nice(0) + 10)


def test_the_inspecting_process_knows_no_django():
    code = (
        "import sys, registry.inspection.worker, registry.inspection.model, registry.inspection.trial, "
        "registry.inspection.validation\n"
        "print([m for m in sys.modules if m.split('.')[0] in "
        "('django', 'rest_framework', 'celery', 'pyscipopt', 'channels', 'appliance', 'scheduler', 'console')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "good.onnx"
    path.write_bytes(graphs.good())
    return path


@pytest.mark.parametrize(
    ("dies", "text"),
    [
        ("os.kill(os.getpid(), 11)", "crashes the runtime that loads it (SIGSEGV)"),
        ("os.kill(os.getpid(), 9)", "was stopped: it takes more than"),
        ("print('std::bad_alloc', file=sys.stderr); os.abort()", "needs more than"),
        ("sys.exit(3)", "could not be inspected; the log says why"),
        ("os._exit(0)", "could not be inspected"),
        ("print('[]')", "could not be inspected"),
    ],
    ids=["crash", "killed", "out of memory in native code", "exit", "silence", "no verdict"],
)
def test_whatever_the_process_dies_of_is_told(dies, text, good, settings, monkeypatch, tmp_path):
    """A stand-in for the worker dies in that way: the sandbox's side must word each."""
    stand_in = tmp_path / "stand_in.py"
    stand_in.write_text(f"import os, sys\nsys.stdin.read()\n{dies}\n")
    real = subprocess.run
    monkeypatch.setattr(
        sandbox.subprocess, "run", lambda command, **kwargs: real([sys.executable, str(stand_in)], **kwargs)
    )
    with pytest.raises(InvalidInput) as refused:
        sandbox.inspect_model(good, graphs.SIGNATURE, settings.NEREUS)
    assert [fault.field for fault in refused.value.faults] == ["file"]
    assert text in refused.value.faults[0].detail


def test_secrets_in_the_environment_stay_outside(good, settings, monkeypatch):
    seen = {}
    real = subprocess.run

    def look(command, **kwargs):
        seen.update(kwargs["env"])
        return real(command, **kwargs)

    monkeypatch.setenv("NEREUS_DATABASE_URL", "postgresql://user:secret@host/db")
    monkeypatch.setattr(sandbox.subprocess, "run", look)
    facts = sandbox.inspect_model(good, graphs.SIGNATURE, settings.NEREUS)
    assert facts["opset"] == 17
    assert not any(name.startswith("NEREUS_") for name in seen) and "secret" not in str(seen)


def test_one_inspection_at_a_time_and_a_bounded_wait(good, settings, monkeypatch):
    monkeypatch.setattr(sandbox, "MAX_WAIT_S", 0.2)
    with sandbox.one_at_a_time(settings.NEREUS), pytest.raises(Busy) as busy:
        sandbox.inspect_model(good, graphs.SIGNATURE, settings.NEREUS)
    assert busy.value.retry_after_s == 30
    sandbox.inspect_model(good, graphs.SIGNATURE, settings.NEREUS)


def test_busy_is_told_with_a_time_to_come_back(upload, files, store, monkeypatch):
    monkeypatch.setattr(sandbox, "MAX_WAIT_S", 0.2)
    store.mkdir(exist_ok=True)
    with open(store / ".inspecting", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        response = upload(graphs.good())
    assert response.status_code == 503 and response["Retry-After"] == "30"
    assert files() == []
