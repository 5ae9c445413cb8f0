"""A profile job's end arrives although its link was lost or it was not stored."""

from __future__ import annotations

import hashlib

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError

from registry import profiling, storage
from registry.models import Device, Node, ProfileJob, Variant
from scheduler.profiling import dispatch, results
from tests.control.linked import cluster, until
from tests.control.world import application, variant
from workers.node import daemon as node_daemon

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


def order(name: str = "new") -> int:
    """Have the only device measure a variant, whose file the store has."""
    made = variant(application(), name, 95, 5, state=Variant.State.PROFILING)
    made.profiles.all().delete()
    content = b"not a model, but the stand-in does not mind"
    made.digest, made.size_bytes = hashlib.sha256(content).hexdigest(), len(content)
    made.save()
    path = storage.path(made.digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    (job,) = profiling.order(made, "registration", [Device.objects.get().type])
    assert dispatch.dispatch() == 1
    return job.pk


def up() -> bool:
    return Device.objects.filter(state="up").exists()


def ended(state: str = "done") -> bool:
    return ProfileJob.objects.get().state == state


@pytest.mark.parametrize(("name", "how", "detail"), [("new", "done", ""), ("fail", "failed", "no such operator")])
async def test_an_end_that_could_not_be_stored_is_sent_again(name, how, detail, home, monkeypatch):
    monkeypatch.setattr(node_daemon, "STATES_EVERY_S", 1.0)
    stored, tries, nodes, kept = getattr(results, how), [], [], []

    def once_in_vain(node, message) -> None:
        tries.append(message)
        if len(tries) == 1:
            raise OperationalError("database is locked")
        kept.extend(nodes[0].jobs.under_way)
        stored(node, message)

    monkeypatch.setattr(results, how, once_in_vain)
    async with cluster(home) as (_, node):
        nodes.append(node)
        await until(sync_to_async(up), "the device")
        job = await sync_to_async(order)(name)
        await until(sync_to_async(lambda: ended(how)), "the result")
        stored_job = await sync_to_async(ProfileJob.objects.get)()
        assert (stored_job.attempts, stored_job.detail, tries[0].job) == (1, detail, job)
        assert job in kept, "the node repeats what the control plane may not have stored"
        await until(lambda: not node.jobs.under_way, "the node learns that the result has arrived")
        count = len(tries)
        node.jobs.repeat()
        assert len(tries) == count, "nothing is left to repeat"


async def test_a_result_that_is_lost_with_its_link_is_sent_on_the_next_one(home, monkeypatch):
    stored, tries = results.done, []

    def lost(node, message) -> None:
        tries.append(message)
        if len(tries) == 1:
            # As if the link had been given up before the message was read.
            Node.objects.update(channel="")
            assert dispatch.requeue_silent() == 1
            raise OperationalError("gone")
        stored(node, message)

    monkeypatch.setattr(results, "done", lost)
    async with cluster(home) as (_, node):
        await until(sync_to_async(up), "the device")
        await sync_to_async(order)()
        await until(lambda: tries, "the result is under way")
        node.link.rejoin()
        await until(sync_to_async(ended), "the result")
        assert (await sync_to_async(ProfileJob.objects.get)()).attempts == 1
