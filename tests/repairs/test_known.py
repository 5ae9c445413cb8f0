"""Since when repairs are known, ignoring them, and their order. All is real, except for time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from registry import clock, storage
from registry.access.roles import AccessRole
from registry.models import Gateway, Node, Variant
from scheduler.models import KnownRepair
from scheduler.repairs import facts, known, listing
from scheduler.repairs.checks import box as box_checks
from tests.repairs.looks import found, keep_alive, report, store

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis", "fresh")]


@pytest.fixture
def missing(world):
    storage.path(world["big"].digest).unlink()
    return "files:digits"


def restart(monkeypatch) -> None:
    monkeypatch.setattr(known, "_here", clock.Unchanged())
    monkeypatch.setattr(known, "_looked_at", None)


def test_upkeep_remembers_since_when_and_whether_it_saw_it_begin(world, later, monkeypatch):
    listing.watch()
    later(10)
    storage.path(world["big"].digest).unlink()
    keep_alive()
    listing.watch()
    row = KnownRepair.objects.get()
    assert row.witnessed
    restart(monkeypatch)
    repair = found()["files:digits"]
    assert repair.since == row.since and not repair.at_least
    store(world["big"])
    listing.watch()
    assert not KnownRepair.objects.exists()


def test_what_upkeep_sees_at_its_first_look_may_have_begun_before(missing, monkeypatch):
    assert found()[missing].at_least
    listing.watch()
    since = KnownRepair.objects.get().since
    restart(monkeypatch)
    listing.watch()
    repair = found()[missing]
    assert repair.since == since and repair.at_least


def test_a_look_of_another_process_counts_towards_how_long_it_lasted(world, later, monkeypatch):
    report(world["node"], "box/cpu1", "down")
    listing.watch()
    restart(monkeypatch)
    assert found() == {}
    later(11)
    restart(monkeypatch)
    keep_alive()
    assert set(found()) == {"device:box/cpu1"}


def test_an_ignored_repair_stays_ignored_until_it_is_taken_back(missing, monkeypatch):
    listing.watch()
    known.ignore(found()[missing], "me")
    restart(monkeypatch)
    listing.watch()
    repair = found()[missing]
    assert repair.ignored_by == "me"
    assert listing.needing([repair], AccessRole.OPERATOR) == []
    known.notice(found()[missing])
    assert found()[missing].ignored_by == ""


def test_an_ignored_repair_that_gets_worse_is_shown(monkeypatch):
    def disk(free: int):
        monkeypatch.setattr(box_checks, "disk_below", lambda home: box_checks.Disk(free, 2**40))
        return known.shown(box_checks.disk(facts.Facts()))[0]

    known.ignore(disk(2**30), "me")
    assert disk(2**30 - 1).ignored_by == "me"
    assert disk(2**20).ignored_by == ""


def test_an_ignored_repair_that_comes_again_is_shown(missing):
    known.ignore(found()[missing], "me")
    assert found()[missing].ignored_by == "me"
    big = Variant.objects.get(name="big")
    store(big)
    listing.watch()
    storage.path(big.digest).unlink()
    assert found()[missing].ignored_by == ""


def test_nothing_is_taken_for_over_while_redis_is_away(missing):
    listing.watch()
    known.remember([], complete=False)
    assert KnownRepair.objects.exists()


def test_browsers_follow_what_the_list_says(missing, world):
    first = listing.summary(listing.current(), AccessRole.VIEWER)
    assert (first["count"], first["error"], first["warning"]) == (1, 1, 0)
    assert listing.summary(listing.current(), AccessRole.VIEWER) == first
    store(world["big"])
    second = listing.summary(listing.current(), AccessRole.VIEWER)
    assert second["count"] == 0 and second["version"] != first["version"]


def test_the_first_repairs_are_errors_and_the_oldest(world):
    Gateway.objects.create(name="shed", state="pending", channel="c")
    Node.objects.update(behind_since=datetime(2020, 1, 1, tzinfo=UTC))
    storage.path(world["big"].digest).unlink()
    assert [repair.key for repair in listing.current()] == ["behind:node:box", "files:digits", "waiting:gateway:shed"]
