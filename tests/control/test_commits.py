"""Changes of several connections in one transaction."""

from __future__ import annotations

import asyncio
import threading

import pytest
from asgiref.sync import sync_to_async
from django.db import DatabaseError, connection, transaction

from registry.models import Node
from scheduler.members import commits

pytestmark = pytest.mark.django_db(transaction=True)


def make(name: str) -> str:
    return Node.objects.create(name=name).name


def refuse(name: str) -> None:
    make(name)
    raise ValueError(f"{name} is not wanted")


def names() -> set[str]:
    return set(Node.objects.values_list("name", flat=True))


async def test_changes_that_come_while_one_is_made_share_a_transaction(monkeypatch):
    """One that fails takes back only itself."""
    monkeypatch.setattr(commits, "HELD_S", 3600.0)
    began, go_on = threading.Event(), threading.Event()
    committed: list[int] = []

    def first() -> str:
        began.set()
        assert go_on.wait(60)
        return make("first")

    def counted(name: str) -> str:
        if not committed:
            transaction.on_commit(lambda: committed.append(1))
        return make(name)

    alone = asyncio.create_task(commits.together(first))
    await asyncio.to_thread(began.wait, 60)
    others = [asyncio.create_task(commits.together(counted, f"box-{number}")) for number in range(10)]
    others.append(asyncio.create_task(commits.together(refuse, "unwanted")))
    await asyncio.sleep(0)
    go_on.set()
    assert await alone == "first"
    *made, refused = await asyncio.gather(*others, return_exceptions=True)
    assert made == [f"box-{number}" for number in range(10)]
    assert isinstance(refused, ValueError) and "unwanted" in str(refused)
    assert len(committed) == 10, "the hooks ran after all ten, which were one transaction"
    assert await sync_to_async(names)() == {"first", *made}


def test_a_transaction_that_takes_long_leaves_the_rest_to_the_next(monkeypatch):
    monkeypatch.setattr(commits, "HELD_S", 0.0)
    outcomes = commits.commit([lambda: make("one"), lambda: make("two")])
    assert [outcome.value for outcome in outcomes] == ["one"] and names() == {"one"}


def test_nothing_counts_as_made_where_the_transaction_is_lost():
    """SQLite ends one by itself on a full disk."""

    def end() -> None:
        connection.connection.rollback()

    outcomes = commits.commit([lambda: make("one"), end, lambda: make("two")])
    assert all(isinstance(outcome.error, DatabaseError) for outcome in outcomes) and names() == set()
    assert [outcome.value for outcome in commits.commit([lambda: make("three")])] == ["three"]


async def test_a_change_whose_connection_ended_is_made_all_the_same():
    began, go_on = threading.Event(), threading.Event()

    def slow() -> str:
        began.set()
        assert go_on.wait(60)
        return make("slow")

    gone = asyncio.create_task(commits.together(slow))
    await asyncio.to_thread(began.wait, 60)
    gone.cancel()
    after = asyncio.create_task(commits.together(make, "after"))
    go_on.set()
    assert await after == "after"
    assert await sync_to_async(names)() == {"slow", "after"}
