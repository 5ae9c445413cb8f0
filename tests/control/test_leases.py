"""Leases on planning and upkeep: one holder at a time, whatever process is killed, stopped or late."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest
from django.db import transaction

from appliance.celery import SteadyScheduler, app
from scheduler import tasks
from scheduler.control import leases, requests
from scheduler.models import Plan, WorkLease
from tests import postgresql
from tests.control.test_plan_requests import queued
from tests.control.world import application, node, variant
from tests.forked import ForkedProcess, of_commands
from tests.running import ROOT, bare_environment
from tools.waiting import eventually

pytestmark = [pytest.mark.wide, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


def test_a_lease_has_one_holder_and_is_free_once_released():
    with leases.held("plan") as first:
        assert leases.LeaseWatch("plan").take() is None
        with leases.held("plan", wait_s=0.0) as second:
            assert second is None
        with leases.held("tend") as other:
            assert other is not None
    with leases.held("plan", wait_s=0.0) as again:
        assert again.epoch == first.epoch + 1


def abandoned() -> None:
    WorkLease.objects.create(name="plan", holder="box:1:a", epoch=7, renewals=3)


def test_a_lease_that_is_not_renewed_is_taken_over_and_its_holder_stores_nothing(later):
    abandoned()
    watch = leases.LeaseWatch("plan")
    assert watch.take() is None
    later(leases.TTL_S - 0.5)
    WorkLease.objects.update(renewals=4)
    assert watch.take() is None
    later(leases.TTL_S - 0.5)
    assert watch.take() is None
    later(1)
    taken = watch.take()
    assert taken.epoch == 8
    try:
        with transaction.atomic():
            taken.confirm()
        WorkLease.objects.update(epoch=9, holder="another")
        with pytest.raises(leases.LeaseLost), transaction.atomic():
            taken.confirm()
    finally:
        taken.release()
    # Not released for the one that has it now.
    assert WorkLease.objects.get().holder == "another"


def test_a_plan_whose_worker_ended_is_requested_again_once(later, clean_redis):
    abandoned()
    WorkLease.objects.update(wanted=3, started=3, served=2, causes=[[3, "change", "device box/cpu is down"]])
    watches = [leases.LeaseWatch("plan") for _ in range(2)]
    assert not any(requests.look(watch) for watch in watches)
    later(leases.TTL_S)
    assert [requests.look(watch) for watch in watches] == [True, False]
    assert len(queued(clean_redis)) == 1
    later(leases.TTL_S)
    assert not any(requests.look(watch) for watch in watches)
    node()
    variant(application(), "quick", 90, 5)
    tasks.plan()
    assert Plan.objects.get().trigger_detail == "device box/cpu is down"


def test_a_plan_that_lost_its_lease_is_dropped(monkeypatch):
    node()
    variant(application(), "quick", 90, 5)
    from scheduler.control import planner

    solve = planner.verified

    def slowly(*given):
        WorkLease.objects.update(epoch=100, holder="another")
        return solve(*given)

    monkeypatch.setattr(planner, "verified", slowly)
    tasks.plan("manual")
    assert not Plan.objects.exists()


def test_of_several_beats_one_sends_each_task_and_another_takes_its_place():
    first, second = (SteadyScheduler(app, lazy=False) for _ in range(2))
    # A beat sends when it starts.
    assert first.sends("tend") and second.sends("tend")
    sent = [(first.sends("tend"), second.sends("tend")) for _ in range(5)]
    assert sent == [(False, True)] * 5
    # The second one ended after its latest.
    assert [first.sends("tend") for _ in range(3)] == [False, True, True]


# --- real processes ---------------------------------------------------------------------------------------------------

WORKER = """
import time
from scheduler.control import leases, planner
leases.TTL_S, leases.RENEW_S = 4.0, 0.4
while True:
    # Others have their turn, and the cores theirs.
    time.sleep(0.2)
    with leases.held(leases.PLAN) as lease:
        # Also under way: it is killed and stopped anywhere from here on.
        print("begins", lease.epoch, flush=True)
        try:
            plan = planner.make_plan("manual", str(lease.epoch), {}, lease)
        except leases.LeaseLost:
            print("lost", lease.epoch, flush=True)
            continue
        print("stored", lease.epoch, plan.pk, flush=True)
"""

FILL = """
from tests.control.world import application, node, variant
node(); variant(application(), "quick", 90, 5)
"""


class Workers:
    """Planning processes of several homes on one database, to be killed and stopped."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self._folder = folder
        self._settings = settings
        self._started = 0
        self._begun: dict[int, bytes] = {}
        self.running: dict[int, ForkedProcess] = {}
        self.lines: list[list[str]] = []

    def environment(self, home: str) -> dict[str, str]:
        given = bare_environment()
        return given | {"NEREUS_HOME": str(self._folder / home), "PYTHONPATH": str(ROOT)} | self._settings

    def manage(self, *arguments: str) -> None:
        done = of_commands().run("manage.py", *arguments, env=self.environment("home-0"))
        assert done.returncode == 0, done.stderr[-3000:]

    def start(self) -> ForkedProcess:
        # SQLite is a file of one home; processes of homes on two boxes share PostgreSQL.
        home = f"home-{self._started % 2}" if "NEREUS_DATABASE_URL" in self._settings else "home-0"
        self._started += 1
        process = of_commands().start(
            *("manage.py", "shell", "-v", "0", "-c", WORKER),
            env=self.environment(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        os.set_blocking(process.stdout.fileno(), False)
        self.running[process.pid] = process
        return process

    def read(self) -> list[list[str]]:
        """New lines, with the process in front."""
        found = []
        streams = {process.stdout: pid for pid, process in self.running.items()}
        for stream in select.select(list(streams), [], [], 0)[0]:
            pid = streams[stream]
            *whole, self._begun[pid] = (self._begun.get(pid, b"") + (stream.read() or b"")).split(b"\n")
            found += [[str(pid), *line.decode().split()] for line in whole if line and not line.startswith(b"{")]
        self.lines += found
        return found

    def until(self, what, seconds: float = 500.0) -> list[str]:
        """The first line for which ``what`` is true."""
        return eventually(lambda: next(filter(what, self.read()), None), seconds, 0.1)

    def holder(self) -> int:
        """A process that just began to plan."""
        return int(self.until(lambda line: line[1] == "begins")[0])

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=postgresql.needed)])
def workers(request, tmp_path, clean_redis):
    from django.conf import settings

    database = {"NEREUS_DATABASE_URL": postgresql.database()} if request.param == "postgresql" else {}
    made = Workers(tmp_path, NEREUS_REDIS_URL=settings.REDIS_URL, **database)
    yield made
    made.end()


# Each death costs a lease's time, during which the others keep all cores busy: one will do in the short form.
@pytest.mark.parametrize("deaths", [1, pytest.param(4, marks=pytest.mark.long)])
def test_workers_that_are_killed_and_stopped_in_mid_lease_store_one_plan_an_epoch(workers, deaths):
    workers.manage("migrate", "-v", "0")
    workers.manage("shell", "-v", "0", "-c", FILL)
    for _ in range(deaths + 2):
        workers.start()
    for _ in range(deaths):
        # Anywhere between its begin and its end.
        victim = workers.holder()
        time.sleep(random.uniform(0.0, 0.03))
        workers.running[victim].kill()
        workers.running.pop(victim).wait()
        workers.until(lambda line, victim=victim: line[1] == "stored" and line[0] != str(victim))
    stopped = workers.holder()
    os.kill(stopped, signal.SIGSTOP)
    workers.until(lambda line: line[1] == "stored" and line[0] != str(stopped))
    os.kill(stopped, signal.SIGCONT)
    workers.until(lambda line: line[0] == str(stopped))
    workers.until(lambda line: line[0] == str(stopped) and line[1] == "stored")

    begun = [int(line[2]) for line in workers.lines if line[1] == "begins"]
    assert len(begun) == len(set(begun)), "two processes held one epoch"
    stored = sorted((int(line[3]), int(line[2])) for line in workers.lines if line[1] == "stored")
    epochs = [epoch for _, epoch in stored]
    assert len(set(version for version, _ in stored)) == len(stored) == len(set(epochs))
    # Fenced: what a stopped holder computed never comes after its successor's plan.
    assert epochs == sorted(epochs)
