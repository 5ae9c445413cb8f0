"""An executor keeps to what it needs, also when a model has taken it over."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.executor.harness import Executor, application, order, resident, rows, variant
from workers import confinement
from workers.protocol.control import ProfileDone, ProfileFailed

pytestmark = pytest.mark.skipif(not confinement.isolation().complete, reason="this kernel cannot isolate")

#: found by Python's start; once a batch is run its code tries what an attacker would, and writes down what it could
TAKEN_OVER = """
import json, os, sys
if "workers.executor" in sys.orig_argv:
    def tries():
        import socket, threading
        home = os.environ["NEREUS_HOME"]
        redis = home + "/run/redis.sock"
        def unix():
            socket.socket(socket.AF_UNIX).connect(redis)
        def datagram():
            socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"x", redis)
        def inherited():
            pair = socket.socketpair()
            pair[0].connect(redis)
        def thread():
            done = threading.Event()
            threading.Thread(target=done.set).start()
            assert done.wait(60)
        parent = os.getppid()
        yield "credentials", lambda: open(home + "/credentials.json").read()
        yield "home", lambda: os.listdir(home)
        yield "run folder", lambda: open(home + "/run/new", "w")
        yield "remove socket", lambda: os.unlink(redis)
        yield "write model", lambda: open(home + "/cache/model.onnx", "r+")
        yield "chmod", lambda: os.chmod(home + "/credentials.json", 0o666)
        yield "unix socket", unix
        yield "datagram", datagram
        yield "inherited socket", inherited
        yield "tcp", lambda: socket.create_connection(("127.0.0.1", 1))
        yield "fork", os.fork
        yield "program", lambda: os.execv("/bin/true", ["true"])
        yield "spawn", lambda: os.posix_spawn("/bin/true", ["true"], {})
        yield "environment of parent", lambda: open(f"/proc/{parent}/environ").read()
        yield "memory of parent", lambda: open(f"/proc/{parent}/mem", "rb").read(1)
        yield "signal", lambda: os.kill(parent, 0)
        yield "thread", thread
        yield "model", lambda: open(home + "/cache/model.onnx", "rb").read()

    def outcomes():
        for name, attempt in tries():
            try:
                attempt()
                yield name, "allowed"
            except Exception as error:
                yield name, type(error).__name__

    import workers.executor.answers as answers
    of_batch = answers.of_batch
    def run(model, batch):
        print("OUTCOMES " + json.dumps(dict(outcomes())), file=sys.stderr, flush=True)
        return of_batch(model, batch)
    answers.of_batch = run
"""


@pytest.fixture
def home(tmp_path, tiny_models) -> Path:
    """A home with a secret, a socket that somebody listens on, and a model."""
    home = tmp_path / "h"
    for folder in ("run", "cache", "start"):
        (home / folder).mkdir(parents=True)
    (home / "credentials.json").write_text("secret")
    (home / "cache" / "model.onnx").write_bytes(tiny_models["quick"].read_bytes())
    (home / "start" / "sitecustomize.py").write_text(textwrap.dedent(TAKEN_OVER))
    return home


async def _outcomes(home: Path, monkeypatch, confined: bool) -> dict[str, str]:
    monkeypatch.setenv("PYTHONPATH", f"{home / 'start'}:{Path.cwd()}")
    # It imports numpy too early: no thread of it may run before the executor is confined.
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    executor = Executor(home / "run", forked=False, home=str(home), confine_executors=str(int(confined)))
    executor.models = home / "cache"
    path = home / "cache" / "model.onnx"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(home / "run" / "redis.sock"))
        listening.listen()
        async with executor:
            gateway = await executor.applied(1, [resident(variant(1, path), 0.05)], [application(slo_s=60.0)], [path])
            await gateway.query(rows(1))
            lines = (home / "run" / "log").read_text().splitlines()
    return json.loads(next(line for line in lines if line.startswith("OUTCOMES ")).removeprefix("OUTCOMES "))


async def test_an_executor_that_was_taken_over_can_only_serve(home, monkeypatch):
    outcomes = await _outcomes(home, monkeypatch, confined=True)
    allowed = {name for name, outcome in outcomes.items() if outcome == "allowed"}
    assert allowed == {"thread", "model"}, outcomes
    denied = {name: outcome for name, outcome in outcomes.items() if name not in allowed}
    # Refused by the kernel, and not by accident.
    assert denied.pop("inherited socket") == "ConnectionRefusedError"
    assert set(denied.values()) == {"PermissionError"}, denied
    assert (home / "credentials.json").read_text() == "secret"


async def test_without_confinement_the_same_attempts_succeed(home, monkeypatch):
    """The attempts are real ones; and the setting that turns confinement off does."""
    # Calls that would end the process or another one are left out.
    start = home / "start" / "sitecustomize.py"
    harmless = [line for line in start.read_text().splitlines() if not any(w in line for w in ("os.fork", "execv"))]
    start.write_text("\n".join(harmless))
    outcomes = await _outcomes(home, monkeypatch, confined=False)
    for name in ("credentials", "home", "run folder", "remove socket", "write model", "chmod", "spawn", "signal"):
        assert outcomes[name] == "allowed", outcomes


async def test_models_outside_of_its_folder_are_not_loaded_and_variants_that_arrive_later_are_found(
    home, tmp_path, tiny_models
):
    executor = Executor(home / "run", forked=False, home=str(home))
    executor.models = home / "cache"
    outside, later = tmp_path / "outside.onnx", home / "cache" / "later.onnx"
    async with executor:
        for job, path, kind in ((1, outside, ProfileFailed), (2, later, ProfileDone)):
            path.write_bytes(tiny_models["quick"].read_bytes())
            executor.node.connection.send(order(job, path))
            ended = await executor.node.next(ProfileDone | ProfileFailed, lambda message, job=job: message.job == job)
            assert isinstance(ended, kind), ended
    (failed,) = executor.node.of(ProfileFailed)
    assert "system error number 13" in failed.message


async def test_nothing_runs_beside_the_main_thread_before_it_is_confined(home):
    """Landlock confines a thread and those that it starts, so all of them must come later."""
    executor = Executor(home / "run", forked=False, home=str(home))
    async with executor:
        for task in Path(f"/proc/{executor.process.pid}/task").iterdir():
            status = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
            assert (status["Seccomp"], status["NoNewPrivs"], int(status["CapEff"], 16)) == ("2", "1", 0)
        assert os.getpid() != executor.process.pid
        lines = [json.loads(line) for line in (home / "run" / "log").read_text().splitlines() if line.startswith("{")]
    (entry,) = [line for line in lines if line["event"] == "executor_confined"]
    assert entry["complete"] is True and entry["isolation"].startswith("Landlock (ABI ")


def test_a_gpu_executor_gets_the_devices_of_gpus_and_no_disks(tmp_path):
    """Its rules are applied in a process of their own, as CUDA itself needs a GPU to try."""
    code = f"""
import os, socket
from pathlib import Path
from workers import confinement
os.environ["PATH"] = "/nonexistent"
private = Path({str(tmp_path)!r})
isolation = confinement.confine_executor([private / "cache"], private=private, gpu=True, write=[private / "cuda"])
assert isolation.complete, isolation
(private / "cuda" / "kernel").write_text("compiled")
open("/dev/shm/" + private.name, "w").close()
os.unlink("/dev/shm/" + private.name)
os.listdir("/sys/class"), os.listdir("/proc/driver")
def refused(call):
    try:
        call()
    except PermissionError:
        return True
assert refused(lambda: open(private / "secret")) and refused(lambda: open("/dev/full", "w"))
assert refused(lambda: os.listdir("/dev"))
assert refused(lambda: open("/etc/passwd"))
assert refused(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
assert refused(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
pipe = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
try:
    pipe.connect("/tmp/nvidia-mps/control")
except ConnectionRefusedError:
    print("as if nobody listened")
"""
    for folder in ("cache", "cuda"):
        (tmp_path / folder).mkdir()
    (tmp_path / "secret").write_text("secret")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "as if nobody listened", done.stderr
