"""Instances' states, from a node's seconds to REST and console."""

from __future__ import annotations

import msgspec
import pytest
from asgiref.sync import sync_to_async
from django.test import Client

from registry.models import Device
from scheduler import telemetry
from scheduler.instances.states import Observed, observations
from tests.accounts import account
from tests.control.connections import Connection, token
from tests.control.honest import INFO
from tests.control.linked import until
from tests.control.world import application, variant
from workers.dispatch.instance_states import SLACK, SLOWER, instance_state
from workers.protocol import control
from workers.protocol.specs import DeviceState, DeviceStats, VariantStats

objects = sync_to_async


@pytest.mark.parametrize(
    ("loaded", "load", "ratio", "run_s", "state"),
    [
        (False, 0.0, 0.0, 0.0, "inactive"),
        (False, 2.0, 3.0, 1.0, "inactive"),
        (True, 0.0, 0.0, 0.0, "active"),
        (True, 1 / SLACK - 1e-6, 1.0, 0.01, "active"),
        (True, 1 / SLACK + 1e-6, 1.0, 0.01, "overloaded"),
        (True, 0.5, SLOWER, 0.01, "active"),
        (True, 0.5, SLOWER + 0.01, 0.01, "interfered"),
        # Overload explains slow runs, and less than a millisecond is nothing.
        (True, 1.5, 3.0, 0.01, "overloaded"),
        (True, 0.5, 3.0, 0.0014, "active"),
    ],
)
def test_the_state_of_an_instance_follows_from_load_and_run_times(loaded, load, ratio, run_s, state):
    assert instance_state(loaded, load, ratio, run_s) == state


def test_seconds_without_a_variant_count_as_idle_and_the_last_ratio_holds():
    def second(*variants):
        return {"devices": [{"device": "box/cpu0", "variants": list(variants)}]}

    busy = {"variant": 3, "rows": 30, "batches": 5, "busy_s": 0.5, "drift": 1.2}
    found = observations([second(busy), second({**busy, "drift": 0.0}), second()])
    assert found == {("box/cpu0", 3): Observed(rate=20.0, ratio=1.2, run_s=0.1)}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_redis")
async def test_an_overloaded_and_an_interfered_instance_are_shown_as_such_everywhere(later):
    """REST and both pages show what a node's seconds say of its instances.

    The node's link stores the seconds in Redis.
    """
    owner = await objects(application)()
    # Batches of up to 8 rows at 10 ms a row: 100 rows/s within half of the SLO of 300 ms.
    busy, slow, idle = [await objects(variant)(owner, name, 90, 10) for name in ("busy", "slow", "idle")]
    infos = INFO, msgspec.structs.replace(INFO, id="box/cpu1")
    connection = Connection("node", await token())
    await connection.join("box", devices=infos)
    states = tuple(DeviceState(info.id, "up", 0, (one.pk,)) for info, one in zip(infos, (busy, slow), strict=True))
    await connection.say(control.DeviceStates(devices=states))
    second = (
        DeviceStats("box/cpu0", 1.0, 0.0, 9, 2**20, 1, (VariantStats(busy.pk, "digits", 99, 13, 1.0, 1.0),)),
        DeviceStats("box/cpu1", 0.4, 0.0, 0, 2**20, 1, (VariantStats(slow.pk, "digits", 20, 10, 0.4, 2.0),)),
    )
    await connection.say(control.NodeStats(devices=second))
    await until(objects(lambda: telemetry.node_seconds(60)), "the second")
    await until(objects(lambda: list(Device.objects.filter(state="up", ref="box/cpu1"))), "the devices")
    client = Client()
    await objects(lambda: client.force_login(account("operator", password="a long passphrase")))()
    listed = (await objects(client.get)("/api/v1/instances/")).json()["results"]
    assert [(one["device"], one["variant"], one["state"]) for one in listed] == [
        ("box/cpu0", "busy", "overloaded"),
        ("box/cpu1", "slow", "interfered"),
        ("", "idle", "inactive"),
    ]
    assert (listed[0]["rate"], listed[0]["capacity"]) == (99, 100)
    assert listed[1]["ratio"] == 2.0
    for page in ("/nodes/", "/applications/digits/"):
        shown = (await objects(client.get)(page)).content.decode()
        assert 'data-testid="instance-box/cpu0-busy" data-state="overloaded"' in shown
        assert 'data-testid="instance-box/cpu1-slow" data-state="interfered"' in shown
    assert idle.name not in [one["variant"] for one in listed[:2]]
    await connection.leave()
