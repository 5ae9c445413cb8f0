"""The executor as a process: bound to its cores and its socket, and lean."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tests.executor.harness import CORE, WIDE, Executor, Peer, application, order, resident, rows, turning, variant
from workers import identity
from workers.executor import gpu
from workers.executor.__main__ import GRACE_S, read_device
from workers.executor.peers import Peers
from workers.executor.process import bind_cores, listening_socket
from workers.protocol import endings
from workers.protocol.control import ProfileDone, ProfileFailed
from workers.protocol.frame_connection import FrameConnection
from workers.protocol.frames import ExecutorIdentity, ExecutorState, ReceivedByExecutor, Refusal, Results
from workers.protocol.specs import DeviceInfo

#: hard limits below those that the executor sets itself, which it may not raise
TIGHT = ("prlimit", f"--data={4 << 30}", "--core=0:0", "--nofile=512")


def test_the_executor_never_imports_the_control_plane():
    code = """
import sys
import workers.executor.__main__, workers.executor.server, workers.executor.measuring
heavy = {"django", "celery", "pyscipopt", "channels", "appliance", "registry", "scheduler", "console"}
sys.exit(", ".join(sorted(heavy & {name.split(".")[0] for name in sys.modules})) or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


async def test_it_keeps_to_its_cores_and_its_socket_to_its_user(tmp_path):
    async with Executor(tmp_path, forked=False) as executor:
        path = Path(executor.endpoint.removeprefix("unix:"))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for task in Path(f"/proc/{executor.process.pid}/task").iterdir():
            assert os.sched_getaffinity(int(task.name)) == {CORE}
        executor.process.kill()
        await executor.ended()
        assert path.is_socket()
    # The next one takes over the dead one's socket.
    async with Executor(tmp_path, forked=False) as executor:
        await executor.peer()


@pytest.mark.parametrize("under", [("nice", "-n", "19"), TIGHT])
async def test_it_serves_and_measures_under_tighter_limits_than_its_own(tmp_path, tiny_models, under):
    path = tiny_models["quick"]
    async with Executor(tmp_path, memory_bytes=8 << 30, under=under) as executor:
        gateway = await executor.applied(1, [resident(variant(1, path), 0.05)], [application(slo_s=60.0)], [path])
        assert isinstance((await gateway.query(rows(1)))[0], Results)
        executor.node.connection.send(order(1, path, max_batch=2))
        assert (await executor.node.next(ProfileDone | ProfileFailed)).points


async def test_sigterm_finishes_what_waits_and_leaves_nothing_behind(tmp_path, tiny_models):
    path = tiny_models["quick"]
    async with Executor(tmp_path, forked=False, queue_rows="100000") as executor:
        gateway = await executor.applied(1, [resident(variant(1, path), 0.05)], [application(slo_s=60.0)], [path])
        waiting = [gateway.dispatch(rows(2000)) for _ in range(49)]
        # Refused at once, and read behind all others: these are there.
        assert (await gateway.query(rows(1), variant=77))[0].code == "not_resident"
        began = time.monotonic()
        assert await executor.terminate() == 0
        took_s = time.monotonic() - began
        answers = [(await gateway.answer(id))[0] for id in waiting]
        assert any(isinstance(answer, Results) for answer in answers)
        # On a busy machine the grace may end first; the rest is handed back.
        refused = {(answer.code, answer.retryable) for answer in answers if isinstance(answer, Refusal)}
        assert not refused or (refused == {("draining", True)} and took_s >= GRACE_S)
        with pytest.raises(ConnectionRefusedError):
            await Peer().connect(executor.endpoint, "node")


async def test_what_cannot_be_finished_in_time_or_is_new_is_handed_back_on_sigterm(tmp_path):
    path = turning(tmp_path / "slow.onnx", turns=40_000)
    async with Executor(tmp_path, forked=False) as executor:
        slow = resident(variant(1, path), 0.05, max_batch=1)
        gateway = await executor.applied(1, [slow], [application(signature=WIDE)], [path])
        ids = [gateway.dispatch(rows(1), budget_s=600.0) for _ in range(400)]
        await gateway.until(lambda: gateway.answered)
        ended = asyncio.create_task(executor.terminate())
        await gateway.next(ExecutorState, lambda state: state.draining)
        new = (await gateway.query(rows(1)))[0]
        assert (new.code, new.retryable) == ("draining", True)
        answers = [(await gateway.answer(id))[0] for id in ids]
        refused = {(answer.code, answer.retryable) for answer in answers if isinstance(answer, Refusal)}
        assert refused == {("draining", True)}
        assert any(isinstance(answer, Results) for answer in answers)
        assert await ended == 0


@pytest.mark.parametrize(
    ("change", "settings", "message"),
    [
        ({"endpoint": "unix:/no/such/folder/e.sock"}, {}, "No such file or directory"),
        ({"kind": "cuda", "gpu_index": 0}, {}, "device box/cpu0"),
        ({}, {"NEREUS_QUEUE_ROWS": "none"}, "NEREUS_QUEUE_ROWS='none': must be a whole number from 1 to 100000"),
    ],
)
def test_what_it_cannot_start_with_is_said_in_one_line(tmp_path, change, settings, message):
    good = DeviceInfo("box/cpu0", "cpu", "test", "", (CORE,), None, 0, f"unix:{tmp_path}/e.sock")
    if change.get("kind") == "cuda" and Path("/dev/nvidia0").exists():
        pytest.skip("this box has a GPU")
    info = msgspec.structs.replace(good, **change)
    done = subprocess.run(
        [sys.executable, "-m", "workers.executor", "--device", msgspec.json.encode(info).decode()],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **settings},
    )
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("endpoint", "message"),
    [
        ("tcp://x", "endpoint 'tcp://x': must be unix:/path"),
        ("unix:relative", "must be unix:/path"),
        ("unix:/tmp/" + "x" * 120, "at most 107 bytes"),
        ("unix:/etc/hostname", "exists and is not a socket"),
    ],
)
def test_endpoints_that_cannot_be_are_named(endpoint, message):
    with pytest.raises(ValueError, match=message):
        listening_socket(endpoint)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/no/such/file", "--device /no/such/file: No such file"),
        ("{}", "--device: Object missing required field `id`"),
        (
            '{"id":"a","kind":"tpu","type":"","description":"","cores":[],"gpu_index":null,"memory_bytes":0,"endpoint":""}',
            "--device: Invalid enum value 'tpu'",
        ),
    ],
)
def test_devices_that_cannot_be_are_named(text, message):
    with pytest.raises(ValueError, match=message):
        read_device(text)


def test_cores_that_do_not_exist_are_named():
    info = DeviceInfo("box/cpu0", "cpu", "test", "", (4095,), None, 0, "unix:/e")
    with pytest.raises(ValueError, match=r"cores \[4095\] of device box/cpu0"):
        bind_cores(info)


async def test_what_ended_it_stays_for_a_daemon_that_was_not_its_parent(tmp_path):
    async with Executor(tmp_path, forked=False) as executor:
        assert endings.fault_path(executor.endpoint).read_bytes() == b""
        executor.process.send_signal(signal.SIGSEGV)
        await executor.ended()
        assert endings.fault_path(executor.endpoint).read_text().startswith("Fatal Python error: Segmentation fault")
    executor.info = msgspec.structs.replace(executor.info, cores=(4095,))
    (tmp_path / "device.json").write_bytes(msgspec.json.encode(executor.info))
    done = subprocess.run(
        [sys.executable, "-m", "workers.executor", "--device", str(tmp_path / "device.json")], capture_output=True
    )
    assert done.returncode == 1
    said = endings.fault_path(executor.endpoint).read_text()
    assert said.startswith("exit 1 executor: cores [4095] of device box/cpu0: ")


async def test_a_node_learns_first_what_the_executor_runs_with(tmp_path):
    async with Executor(tmp_path, forked=False, queue_rows="77") as executor:
        found = await executor.node.next(ExecutorIdentity)
        assert executor.node.messages[0] == found
        environ = {"NEREUS_QUEUE_ROWS": "77"}
        assert identity.difference(identity.of(executor.info, environ), found) == ""
        assert identity.difference(identity.of(executor.info, {}), found) == "other settings"
        other = msgspec.structs.replace(executor.info, memory_bytes=5)
        assert identity.difference(identity.of(other, environ), found) == "another description of its device"
        assert identity.difference(msgspec.structs.replace(found, code="x"), found) == "other code"


async def test_without_daemon_and_gateway_it_waits_for_one_and_then_gives_up():
    peers = Peers()
    connection = FrameConnection(ReceivedByExecutor, lambda *_: None, lambda *_: None)
    for join, leave in (
        (lambda: peers.nodes.add(connection), peers.nodes.clear),
        (lambda: peers.gateways.update({connection: 0}), peers.gateways.clear),
    ):
        join()
        waiting = asyncio.create_task(peers.orphaned(0.1))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        leave()
        async with asyncio.timeout(60):
            await waiting


@pytest.mark.parametrize(
    ("message", "fatal"),
    [
        ("CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; hostname=box ; expr=...", True),
        ("CUDA failure 719: unspecified launch failure ; GPU=0", True),
        ("CUDA failure 999: unknown error", True),
        ("CUBLAS failure 13: CUBLAS_STATUS_EXECUTION_FAILED ; GPU=0", True),
        ("CUDA failure 2: out of memory ; GPU=0", False),
        ("CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED", False),
        ("CUDNN_FE failure 11: CUDNN_STATUS_NOT_SUPPORTED", False),
        ("Non-zero status code returned while running Reshape node", False),
    ],
)
def test_errors_after_which_a_process_cannot_use_its_gpu_any_more(message, fatal):
    assert gpu.is_fatal(message) is fatal
