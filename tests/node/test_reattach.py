"""Executors outlive a daemon that is killed, and the next one takes them over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.node.conftest import STAND_IN
from tests.node.test_supervision import Supervised, supervised
from workers.node.executor_process import ExecutorProcess, pid_path, read_pid
from workers.node.losses import how_it_ended
from workers.protocol import endings, run_record

#: a daemon that is a process of its own: argv is the home, then the executor's further arguments
_DAEMON = """
import asyncio, sys
from pathlib import Path
from tests.node.test_supervision import STAND_IN, Supervised
from workers import log
log.configure("node")
async def main():
    watched = Supervised(Path(sys.argv[1]), (*STAND_IN, *sys.argv[2:]))
    running = asyncio.create_task(watched.executor.run())
    await watched.until(lambda: watched.executor.up)
    print(watched.executor.pid, flush=True)
    await running
asyncio.run(main())
"""


@contextmanager
def left_behind(home, **environ: str):
    daemon = subprocess.Popen(
        [sys.executable, "-c", _DAEMON, str(home)], stdout=subprocess.PIPE, text=True, env={**os.environ, **environ}
    )
    process = psutil.Process(int(daemon.stdout.readline()))
    daemon.kill()
    daemon.wait()
    daemon.stdout.close()
    try:
        yield process
    finally:
        if process.is_running():
            process.kill()


def ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def lines(home) -> list[str]:
    return next(Path(home, "run").glob("*.log")).read_text().splitlines()


async def test_the_next_daemon_takes_over_what_a_killed_one_left(home):
    with left_behind(home) as process:
        assert process.is_running()
        async with supervised(home) as watched:
            await watched.until(lambda: watched.executor.up)
            assert (watched.executor.pid, watched.executor.starts) == (process.pid, 0)
            assert watched.losses() == []
            assert [line.split(" ", 1)[1] for line in lines(home)] == ["started", "hello box", "hello box"]
        # A daemon that is stopped ends executors, its own and others'.
        assert ended(process)


async def test_one_that_was_taken_over_is_replaced_when_it_ends(home):
    with left_behind(home) as process:
        async with supervised(home) as watched:
            await watched.until(lambda: watched.executor.up)
            process.send_signal(signal.SIGSEGV)
            await watched.until(lambda: watched.losses() and watched.executor.up)
            assert watched.executor.pid != process.pid
            assert watched.executor.starts == 1
            assert read_pid(pid_path(watched.executor.device.endpoint))[0] == watched.executor.pid


async def test_one_with_other_settings_is_replaced(home):
    with left_behind(home, NEREUS_QUEUE_ROWS="77") as process:
        async with supervised(home) as watched:
            await watched.until(lambda: watched.executor.up)
            assert watched.losses() == ["was started by an earlier daemon and has other settings"]
            assert watched.executor.pid != process.pid
        assert ended(process)


async def test_one_that_does_not_answer_is_replaced(home):
    with left_behind(home) as process:
        process.suspend()
        async with supervised(home, reattach=0.5) as watched:
            await watched.until(lambda: watched.executor.up)
            assert watched.losses() == ["did not answer on its socket within 0.5 s"]
        assert ended(process)


async def test_a_process_id_that_is_anothers_by_now_is_left_alone(home):
    other = subprocess.Popen(["sleep", "600"])
    try:
        watched = Supervised(home, STAND_IN)
        path = pid_path(watched.executor.device.endpoint)
        path.write_text(f"{other.pid} 12345\n")
        async with supervised(home) as watched:
            await watched.until(lambda: watched.executor.up)
            assert watched.executor.starts == 1
        assert other.poll() is None
        path.write_text("1 0\n")
        assert ExecutorProcess.find(path) is None
        path.write_text("not a number\n")
        assert ExecutorProcess.find(path) is None
    finally:
        other.kill()
        other.wait()


async def test_a_crash_that_no_daemon_saw_is_reported_by_the_next_one(home):
    with left_behind(home) as process:
        process.kill()
        await Supervised(home, STAND_IN).until(lambda: ended(process))
        watched = Supervised(home, STAND_IN)
        endpoint = watched.executor.device.endpoint
        endings.fault_path(endpoint).write_text("exit 86\n")
        run_record.create(run_record.record_path(endpoint))[run_record.RUNNING] = 7
        async with supervised(home) as watched:
            await watched.until(lambda: watched.executor.up)
            assert watched.losses() == ["ended itself: a run did not stop when its limit was exceeded"]
            # The fresh process is not blamed for it.
            assert not endings.fault_path(endpoint).exists()


@pytest.mark.parametrize(
    ("note", "oom_killed", "reason", "crashed"),
    [
        ("exit 86\n", False, "ended itself: a run did not stop when its limit was exceeded", True),
        (
            "exit 1 executor: cores [9] of device box/cpu0: Invalid argument\n",
            False,
            "exited with code 1: cores [9] of device box/cpu0: Invalid argument",
            True,
        ),
        ("exit 89\n", False, "ended itself: its GPU is gone", False),
        ("Fatal Python error: Segmentation fault\n\nCurrent thread\n", False, "crashed: Segmentation fault", True),
        ("", True, "killed by the kernel for lack of memory", True),
        ("", False, "ended; its exit status is unknown, since an earlier daemon had started it", False),
        (None, False, "ended; its exit status is unknown, since an earlier daemon had started it", False),
    ],
)
def test_what_a_process_left_tells_how_it_ended_where_its_exit_status_is_unknown(
    tmp_path, note, oom_killed, reason, crashed
):
    path = tmp_path / "x.fault"
    if note is not None:
        path.write_text(note)
    loss = how_it_ended(None, True, oom_killed, path)
    assert (loss.reason, loss.crashed) == (reason, crashed)
