"""Runs that exceed their limit are stopped, and the device serves on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from queue import SimpleQueue

import numpy as np
import pytest

from tests.executor.harness import WIDE, Executor, application, endless, resident, variant
from tools.waiting import eventually_async
from workers.executor.watchdog import Watchdog
from workers.protocol.control import FaultReport
from workers.protocol.endings import EXIT_MEMORY, EXIT_STUCK
from workers.protocol.frames import ExecutorState, Refusal, Results
from workers.protocol.run_limits import FACTOR, LEAST_S, limit_s
from workers.protocol.run_record import LOADING, RUNNING, blamed, create, record_path

QUICK = {"x": np.zeros((1, 4), np.float32)}
ENDLESS = {"x": np.full((1, 4), 100, np.float32)}
#: a profile that has batches run in the event loop's own thread, and one that has them handed to the device's
HERE_S, THREAD_S = 0.0001, 0.02


@pytest.fixture
def path(tmp_path):
    return endless(tmp_path / "endless.onnx")


async def serving(executor, path, seconds, slo_s=0.1):
    app = application(slo_s=slo_s, signature=WIDE, late="serve")
    return await executor.applied(1, [resident(variant(1, path), seconds)], [app], [path])


@pytest.mark.parametrize("seconds", [HERE_S, THREAD_S])
async def test_a_lone_endless_query_fails_and_the_device_serves_on(tmp_path, path, seconds):
    async with Executor(tmp_path) as executor:
        gateway = await serving(executor, path, seconds)
        refusal, _ = await gateway.query(ENDLESS)
        assert isinstance(refusal, Refusal)
        assert refusal.code == "stopped" and not refusal.retryable
        assert refusal.message == "v1: the run did not end within 2 s and was stopped"
        answer, outputs = await gateway.query(QUICK)
        assert isinstance(answer, Results) and outputs["y"].shape == (1, 4)
        report = await executor.node.next(FaultReport)
        assert (report.device, report.variant, report.cause) == (executor.info.id, 1, "stopped")
        assert report.detail == f"a run of v1 did not end within {LEAST_S:g} s and was stopped"
        assert executor.process.returncode is None


@pytest.mark.parametrize("seconds", [HERE_S, THREAD_S])
async def test_members_of_a_stopped_batch_may_be_tried_again(tmp_path, path, seconds):
    async with Executor(tmp_path) as executor:
        gateway = await serving(executor, path, seconds)
        gateway.grant({901: QUICK, 902: ENDLESS, 903: QUICK})
        for id in (901, 902, 903):
            refusal, _ = await gateway.answer(id)
            assert refusal.code == "stopped" and refusal.retryable
        gateway.grant({904: QUICK, 905: QUICK}, number=2)
        for id in (904, 905):
            assert isinstance((await gateway.answer(id))[0], Results)


async def test_a_run_that_is_overdue_is_reported_as_busy(tmp_path, path):
    async with Executor(tmp_path) as executor:
        gateway = await serving(executor, path, THREAD_S)
        gateway.grant({901: ENDLESS})
        await gateway.next(ExecutorState, lambda state: state.busy_s > 1.0 and not state.queued)


def test_the_limit_follows_run_time_and_slo():
    assert limit_s(0.001, 0.1) == LEAST_S
    assert limit_s(0.001, 1.0) == FACTOR * 1.0
    assert limit_s(3.0, 1.0) == FACTOR * 3.0
    assert limit_s(0.001, 0.1, 30.0) == 30.0


def test_a_call_that_does_not_end_when_asked_ends_the_process():
    code = """
import time
from workers.executor.watchdog import Watchdog
Watchdog().call(0.05, 1, time.sleep, (600,))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == EXIT_STUCK
    assert "a run did not end" in done.stderr


def test_an_early_end_on_request_does_not_end_the_process():
    ended: list[int] = []
    watchdog = Watchdog(exit_process=ended.append)

    def work() -> float:
        watchdog.terminate()
        # As long as a kernel that cannot be interrupted might take.
        time.sleep(1.5)
        return 1.0

    assert watchdog.call(600.0, 1, work, ()) == 1.0
    assert not ended and not watchdog.stopped_after_s
    assert not watchdog.terminating and not watchdog.options.terminate


def test_a_stopped_process_is_not_held_against_the_run():
    """The limit counts the time in which the process could run."""
    code = """
import sys, time
from workers.executor.watchdog import Watchdog
watchdog = Watchdog()
print("started", flush=True)
watchdog.call(2.0, 1, sys.stdin.readline, ())
print(watchdog.stopped_after_s, flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(2.5)
        process.send_signal(signal.SIGCONT)
        process.stdin.write("\n")
        assert process.stdout.readline() == "0.0\n"
    finally:
        process.kill()
        process.wait()


def test_calls_after_a_stopped_one_start_afresh():
    watchdog = Watchdog()
    stop = threading.Event()
    watchdog.call(0.05, 1, _until, (lambda: watchdog.terminating, stop))
    assert watchdog.stopped_after_s == 0.05
    assert watchdog.call(600.0, 1, lambda: watchdog.options.terminate, ()) is False
    assert watchdog.stopped_after_s == 0.0


def _until(condition, stop) -> None:
    while not condition():
        stop.wait(0.01)


async def test_what_ran_when_the_process_died_stays_on_record(tmp_path, path):
    async with Executor(tmp_path) as executor:
        record = record_path(executor.endpoint)
        gateway = await serving(executor, path, THREAD_S, slo_s=10.0)
        assert blamed(record) == 0
        gateway.grant({901: ENDLESS}, budgets={901: 60.0})
        await eventually_async(lambda: blamed(record) == 1)
        os.kill(executor.process.pid, signal.SIGSEGV)
        await executor.ended()
        assert blamed(record) == 1


def test_the_record_names_what_was_loaded_if_nothing_ran(tmp_path):
    path = tmp_path / "record"
    record = create(path)
    assert blamed(path) == 0
    record[LOADING] = 5
    assert blamed(path) == 5
    record[RUNNING] = 7
    assert blamed(path) == 7
    record[RUNNING] = record[LOADING] = 0
    assert blamed(path) == 0
    assert blamed(tmp_path / "absent") == 0


def test_a_process_that_takes_more_memory_than_its_device_has_ends():
    ended = SimpleQueue()
    # Its limit is exceeded from the start.
    Watchdog(exit_process=ended.put, memory_limit=2**20)
    assert ended.get(timeout=60) == EXIT_MEMORY
