"""One executor process per device, whatever happens to it."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager

import psutil
import pytest

from tests.node.conftest import QUICK_RESTART, STAND_IN
from tools.waiting import eventually_async
from workers.node import devices
from workers.node.backoff import RestartBackoff, RestartTiming
from workers.node.executor_process import pid_path, read_pid
from workers.node.losses import EXIT_STUCK, how_it_ended
from workers.node.supervision import ExecutorSupervisor
from workers.protocol import endings, frames
from workers.settings import Settings


def test_the_first_death_after_good_work_costs_no_time_and_the_next_ones_more_and_more():
    backoff = RestartBackoff(RestartTiming(first=0.5, longest=15, steady=30, limit=5))
    assert [backoff.died(healthy) for healthy in (100, 1, 0, 0)] == [0.0, 0.5, 1.0, 2.0]
    assert not backoff.crash_looping
    assert [backoff.died(0), backoff.died(29)] == [15, 15]
    assert backoff.crash_looping
    assert backoff.died(30) == 0.0
    assert not backoff.crash_looping


class Supervised:
    def __init__(self, home, command, **timing):
        environ = {"NEREUS_HOME": str(home), "NEREUS_NODE_NAME": "box", "NEREUS_CPU_DEVICES": "1x1", "NEREUS_GPU": "0"}
        settings = Settings.from_environ(environ)
        settings.make_folders()
        self.events: list[object] = []
        self.executor = ExecutorSupervisor(
            devices.find(settings)[0],
            "box",
            on_frame=self.events.append,
            on_up=lambda: self.events.append("up"),
            on_lost=lambda loss: self.events.append(("lost", loss.reason)),
            command=command,
            timing=RestartTiming(**{**vars(QUICK_RESTART), **timing}),
        )

    def losses(self) -> list[str]:
        return [event[1] for event in self.events if isinstance(event, tuple)]

    async def until(self, condition, seconds: float = 120.0):
        await eventually_async(condition, seconds)


@asynccontextmanager
async def supervised(home, *arguments, command=STAND_IN, **timing):
    watched = Supervised(home, (*command, *arguments), **timing)
    task = asyncio.create_task(watched.executor.run())
    try:
        yield watched
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled(), task.exception()
        assert watched.executor.pid is None


async def test_an_executor_is_started_greeted_and_ended(home, monkeypatch):
    secrets = {"NEREUS_JOIN_TOKEN", "NEREUS_DATABASE_URL", "NEREUS_REDIS_URL", "AWS_SECRET_ACCESS_KEY"}
    for name in secrets:
        monkeypatch.setenv(name, "not for executors")
    monkeypatch.setenv("NEREUS_LOG_LEVEL", "debug")
    async with supervised(home) as watched:
        await watched.until(lambda: watched.executor.up)
        process = psutil.Process(watched.executor.pid)
        assert os.getsid(process.pid) == process.pid
        assert not secrets & set(process.environ())
        assert process.environ()["NEREUS_LOG_LEVEL"] == "debug"
        assert pid_path(watched.executor.device.endpoint).name == "executor-box-cpu0.pid"
        assert read_pid(pid_path(watched.executor.device.endpoint))[0] == process.pid
        await watched.until(lambda: len(watched.events) > 1)
        assert watched.events[0] == "up"
        assert isinstance(watched.events[1], frames.StateReport)
    assert not process.is_running()
    assert not pid_path(watched.executor.device.endpoint).exists()


async def test_one_that_keeps_dying_counts_as_down_and_is_tried_on(home):
    async with supervised(home, "--exit-at-once", longest=0.05) as watched:
        await watched.until(lambda: len(watched.losses()) >= 5)
        assert watched.executor.crash_looping
        assert set(watched.losses()) == {"exited with code 3"}
        assert watched.executor.starts >= 5


async def test_one_that_never_listens_is_replaced(home):
    async with supervised(home, "--never-listen", answer=0.8) as watched:
        await watched.until(lambda: watched.losses())
        assert watched.losses()[0] == "did not answer on its socket within 0.8 s"
        await watched.until(lambda: watched.executor.starts >= 2)


@pytest.mark.parametrize(
    ("timing", "reason"),
    [
        ({"silent": 5.0}, "sent no report for 5 s"),
        # One that is stopped is replaced long before a busy one would be.
        ({"silent": 600.0, "hung": 1.0}, "hung: sent no report for 1 s and does nothing"),
    ],
)
async def test_one_that_hangs_is_replaced(home, timing, reason):
    async with supervised(home, **timing) as watched:
        await watched.until(lambda: watched.executor.up)
        hanging = watched.executor.pid
        os.kill(hanging, signal.SIGSTOP)
        await watched.until(lambda: watched.losses() and watched.executor.up)
        assert watched.losses() == [reason]
        assert watched.executor.pid != hanging and watched.events.count("up") == 2


async def test_a_device_that_cannot_be_used_for_long_comes_back_by_itself(home):
    """The command fails as an executor does whose device is gone, for longer than a crash loop."""
    gone = home / "gone"
    gone.touch()
    command = ("sh", "-c", f'test -e {gone} && exit 1; exec "$0" "$@"', *STAND_IN)
    async with supervised(home, command=command, longest=0.05) as watched:
        await watched.until(lambda: watched.executor.crash_looping and len(watched.losses()) > 5)
        gone.unlink()
        await watched.until(lambda: watched.executor.up)
        await watched.until(lambda: isinstance(watched.events[-1], frames.Frame))


async def test_one_that_ignores_sigterm_is_killed(home):
    async with supervised(home, "--deaf-to-term") as watched:
        await watched.until(lambda: watched.executor.up)
        process = psutil.Process(watched.executor.pid)
    assert not process.is_running()


async def test_a_command_that_does_not_exist_is_a_loss_not_a_crash(home):
    async with supervised(home, command=("/nonexistent/python",)) as watched:
        await watched.until(lambda: len(watched.losses()) >= 2)
        assert watched.losses()[0].startswith("cannot be started: ")


@pytest.mark.parametrize(
    ("code", "answered", "oom_killed", "crashed"),
    [
        (-signal.SIGSEGV, True, False, True),
        (-signal.SIGABRT, True, False, True),
        (-signal.SIGKILL, True, False, False),
        (-signal.SIGKILL, True, True, True),
        (-signal.SIGTERM, True, True, False),
        (EXIT_STUCK, True, False, True),
        (1, True, False, True),
        (1, False, False, False),
        (0, True, False, False),
        (-99, True, False, False),
    ],
)
def test_a_crash_is_distinguished_from_other_ends_by_the_exit_status(tmp_path, code, answered, oom_killed, crashed):
    loss = how_it_ended(code, answered, oom_killed, tmp_path / "none.fault")
    assert loss.crashed is crashed
    assert loss.reason


@pytest.mark.parametrize(("number", "crashed"), [(signal.SIGSEGV, True), (signal.SIGKILL, False)])
async def test_how_a_process_ended_is_published_next_to_its_socket(tmp_path, number, crashed):
    async with supervised(tmp_path) as watched:
        await watched.until(lambda: "up" in watched.events)
        pid, endpoint = watched.executor.pid, watched.executor.device.endpoint
        assert endings.read(endpoint, pid) is None
        os.kill(pid, number)
        await watched.until(watched.losses)
        ending = endings.read(endpoint, pid)
        assert ending.crashed is crashed and ending.reason == f"killed by {signal.Signals(number).name}"
        assert endings.read(endpoint, pid + 1) is None
