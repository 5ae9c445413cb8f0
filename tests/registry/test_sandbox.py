"""The inspecting process: its limits hold, it is lean, and whatever becomes of it becomes a verdict."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from registry.errors import Busy, Conflict, InvalidInput
from registry.inspection import queue, sandbox
from tests.registry import graphs
from workers import confinement
from workers.confinement import syscalls

ROOT = Path(__file__).resolve().parents[2]


def _confined(code: str, read: str = "", **limits: int) -> subprocess.CompletedProcess:
    """Run code in a process that is confined as an inspection is and may read the folder ``read``."""
    limits = {"cpu_s": 1, "address_space": 400 << 20, "file_bytes": 1 << 20} | limits
    program = f"""
import os, socket, sys, threading
from pathlib import Path
from workers.confinement import confine_inspection
pair = socket.socketpair()
grown = open(sys.argv[1], "wb") if sys.argv[1:] else None
isolation, apart = confine_inspection([Path({read!r})] if {read!r} else [], private=Path("/nonexistent"), **{limits})
"""
    return subprocess.run(
        [sys.executable, "-c", program + textwrap.dedent(code), *([read + "/grown"] if read else [])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )


def _denied(call: str, **more) -> bool:
    """Whether the kernel refuses a confined process the call, other than because its object is missing."""
    done = _confined(
        f"""
        try:
            {call}
            print("allowed")
        except OSError as error:
            print("denied" if error.errno in (1, 13) else repr(error))
        """,
        **more,
    )
    assert done.stdout.strip() in ("allowed", "denied"), done.stdout + done.stderr
    return done.stdout.strip() == "denied"


isolated = pytest.mark.skipif(not confinement.isolation().complete, reason="this kernel cannot isolate")


def test_cpu_time_ends():
    assert _confined("while True: pass").returncode == -24


def test_memory_ends():
    assert "MemoryError" in _confined("bytearray(1 << 30)").stderr


def test_files_cannot_grow(tmp_path):
    assert "File too large" in _confined("grown.write(bytes(2 << 20))", str(tmp_path)).stderr
    assert (tmp_path / "grown").stat().st_size <= 1 << 20


def test_threads_end(tmp_path):
    done = _confined(
        """
        started = 0
        try:
            while started < 1000:
                threading.Thread(target=threading.Event().wait, daemon=True).start()
                started += 1
        except RuntimeError:
            pass
        print(started, flush=True)
        os._exit(0)
        """
    )
    assert 1 <= int(done.stdout) < 100


@isolated
@pytest.mark.parametrize(
    "call",
    [
        "open('{folder}/secret').read()",
        "os.listdir('{folder}')",
        "open('/etc/passwd').read()",
        "open(f'/proc/{{os.getppid()}}/environ').read()",
        "open(f'/proc/{{os.getppid()}}/cmdline').read()",
        "open('{folder}/new', 'w')",
        "os.chmod('{folder}/secret', 0o666)",
        "os.utime('{folder}/secret')",
        "os.truncate('{folder}/secret', 0)",
        "os.rename('{folder}/secret', '{folder}/other')",
        "socket.socket(socket.AF_UNIX)",
        "socket.create_connection(('127.0.0.1', 1))",
        "socket.socketpair()",
        "pair[0].connect('/run/any.sock')",
        "os.fork()",
        "os.execv('/bin/true', ['true'])",
        "os.posix_spawn('/bin/true', ['true'], {{}})",
        "os.kill(os.getppid(), 0)",
        "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
        "os.setpriority(os.PRIO_USER, 0, 19)",
        "__import__('resource').prlimit(os.getppid(), __import__('resource').RLIMIT_NOFILE)",
        "os.memfd_create('x')",
    ],
)
def test_what_an_inspection_has_no_use_for_is_denied(call, tmp_path):
    (tmp_path / "secret").write_text("secret")
    code = call.format(folder=tmp_path)
    if "connect('/run" in code:
        # As if nobody listened, which is what callers expect.
        assert "ConnectionRefusedError" in _confined(code).stderr
    else:
        assert _denied(code)
    assert (tmp_path / "secret").read_text() == "secret" and len(list(tmp_path.iterdir())) == 1


@isolated
def test_what_it_may_read_and_do_is_allowed(tmp_path):
    (tmp_path / "upload").write_text("this")
    assert not _denied(f"assert open('{tmp_path}/upload').read() == 'this'", read=str(tmp_path))
    assert not _denied("threading.Thread(target=int).start()")
    assert not _denied("os.kill(os.getpid(), 0)")


@isolated
def test_a_program_of_another_interface_is_denied_as_well(tmp_path):
    """getpid() of x32, which x86-64 kernels may have, has a number beyond the newest; clone3 hides its flags."""
    for number in (0x40000000 + 39, 435, 9999):
        done = _confined(
            f"""
            import ctypes
            libc = ctypes.CDLL(None, use_errno=True)
            print(libc.syscall({number}, 0, 0), ctypes.get_errno())
            """
        )
        assert done.stdout.split() == ["-1", "38"], done.stderr


@isolated
def test_it_is_the_first_to_be_killed_for_memory_and_has_no_privileges():
    done = _confined(
        """
        print(open("/proc/self/oom_score_adj").read().strip(), str(isolation).split(" ")[0], isolation.complete)
        lines = [line.split() for line in open("/proc/self/status")]
        print(*[line[1] for line in lines if line[0] in ("CapEff:", "CapPrm:", "NoNewPrivs:")])
        """
    )
    assert done.stdout.split() == ["1000", "Landlock", "True", "0" * 16, "0" * 16, "1"], done.stderr


def test_the_numbers_of_calls_are_those_of_the_kernel():
    """They are those of this machine in the C library's headers."""
    header = Path(f"/usr/include/{os.uname().machine}-linux-gnu/asm/unistd_64.h")
    if not header.exists():
        pytest.skip("no headers of the kernel here")
    known = dict(re.findall(r"#define __NR_(\w+)\s+(\d+)", header.read_text()))
    listed = syscalls.numbers()
    assert {name: int(known[name]) for name in listed if name in known} == {n: listed[n] for n in listed if n in known}
    assert len(listed) > 100


@isolated
@pytest.mark.parametrize(
    ("missing", "left"), [((444,), "0 True"), ((317, 277), "7 False"), ((444, 317, 277), "0 False")]
)
def test_what_a_kernel_lacks_is_left_out_and_reported(missing, left):
    """A filter answers as a kernel without Landlock, without seccomp(2) or without both does."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"""
import errno
from pathlib import Path
from workers import confinement
from workers.confinement import seccomp
lacks = [step for number in {missing} for step in (seccomp._jump(seccomp._EQUAL, number, 0, 1), seccomp._answer(38))]
ends = [seccomp._instruction(seccomp._RETURN, seccomp._ALLOW)]
real, seccomp._program = seccomp._program, lambda *needs: [seccomp._load(0), *lacks, *ends]
seccomp.forbid(accept=False)
seccomp._program = real
isolation, _ = confinement.confine_inspection([], private=Path("/x"), cpu_s=9, address_space=2**31, file_bytes=9)
print(min(isolation.landlock, 7), isolation.seccomp)
assert not isolation.complete
""",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.strip() == left, done.stderr


def test_a_kernel_that_cannot_isolate_is_named_and_refused_if_wanted(good, settings, monkeypatch):
    lacking = confinement.Isolation(landlock=0, seccomp=False)
    assert not lacking.complete
    assert "Landlock (Linux 5.13 or newer" in str(lacking) and "seccomp filters" in str(lacking)
    monkeypatch.setattr(confinement, "isolation", lambda: lacking)
    assert "upload only what you trust" in sandbox.warning(settings.NEREUS)
    sandbox.inspect_model(good, graphs.SIGNATURE, settings.NEREUS)
    strict = dataclasses.replace(settings.NEREUS, require_isolation=True)
    with pytest.raises(Conflict, match="Uploads are refused"):
        sandbox.inspect_model(good, graphs.SIGNATURE, strict)


@isolated
def test_an_inspection_says_what_isolated_it(good, settings):
    assert sandbox.warning(settings.NEREUS) == ""
    strict = dataclasses.replace(settings.NEREUS, require_isolation=True)
    facts = sandbox.inspect_model(good, graphs.SIGNATURE, strict)
    assert facts["isolation"].startswith("Landlock (ABI ") and facts["offline"] is True
    assert facts["warnings"] == []


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
def test_whatever_the_process_dies_of_is_reported(dies, text, good, settings, monkeypatch, tmp_path):
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


@contextlib.contextmanager
def _places_taken(settings, count: int):
    with contextlib.ExitStack() as held:
        for _ in range(count):
            held.enter_context(queue.place(settings.home / "models", 0))
        yield


def test_a_slow_inspection_does_not_hold_up_the_next(good, settings, monkeypatch):
    monkeypatch.setattr(queue, "MAX_WAIT_S", 0.2)
    with _places_taken(settings.NEREUS, 1):
        sandbox.inspect_model(good, graphs.SIGNATURE, settings.NEREUS)


def test_without_memory_for_two_there_is_one_at_a_time(good, settings, monkeypatch):
    monkeypatch.setattr(queue, "MAX_WAIT_S", 0.2)
    monkeypatch.setattr(queue, "MEMORY_FACTOR", 10**9)
    with _places_taken(settings.NEREUS, 1), pytest.raises(Busy):
        sandbox.inspect_model(good, graphs.SIGNATURE, settings.NEREUS)


def test_uploads_wait_for_a_bounded_time(good, settings, monkeypatch):
    monkeypatch.setattr(queue, "MAX_WAIT_S", 0.2)
    with _places_taken(settings.NEREUS, queue.PLACES), pytest.raises(Busy):
        sandbox.inspect_model(good, graphs.SIGNATURE, settings.NEREUS)
    sandbox.inspect_model(good, graphs.SIGNATURE, settings.NEREUS)


def test_a_line_that_is_full_takes_no_more(good, settings, monkeypatch):
    monkeypatch.setattr(queue, "MAX_WAITING", 0)
    with _places_taken(settings.NEREUS, queue.PLACES), pytest.raises(Busy, match="0 uploads wait already"):
        sandbox.inspect_model(good, graphs.SIGNATURE, settings.NEREUS)


def test_waiting_uploads_get_places_that_become_free(good, settings):
    with contextlib.ExitStack() as held:
        held.enter_context(_places_taken(settings.NEREUS, queue.PLACES))
        with ThreadPoolExecutor(3) as pool:
            waiting = [pool.submit(sandbox.inspect_model, good, graphs.SIGNATURE, settings.NEREUS) for _ in range(3)]
            held.close()
            assert [future.result(120)["opset"] for future in waiting] == [17] * 3


def test_a_client_gets_the_time_to_retry_after(upload, files, settings, monkeypatch):
    monkeypatch.setattr(queue, "MAX_WAIT_S", 0.2)
    with _places_taken(settings.NEREUS, queue.PLACES):
        response = upload(graphs.good())
    assert response.status_code == 503 and response["Retry-After"] == str(queue.RETRY_S)
    assert files() == []
