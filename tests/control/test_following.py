"""Whether a member has joined and follows the plan, with the reason where not."""

import pytest
from django.core.management import CommandError, call_command

from registry import members
from registry.models import Device, Gateway, Node
from scheduler.control.planner import make_plan
from scheduler.members.following import lacking
from tests.control.world import application, node, seen, variant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


def test_a_node_follows_once_its_devices_hold_their_part_of_the_plan(capsys):
    assert lacking(Node, "box") == ["node box has not joined"]
    box = node("box", devices=1)
    assert lacking(Node, "box") == [], "there is nothing to serve"
    made = variant(application(), "best", 90, 5)
    plan = make_plan("periodic")
    assert lacking(Node, "box") == [f"device box/cpu0 follows plan 0, not {plan.pk}"]
    Device.objects.update(plan_version=plan.pk)
    assert lacking(Node, "box") == ["device box/cpu0 has not loaded digits/best"]
    Device.objects.update(warm=[made.pk])
    assert lacking(Node, "box") == []
    call_command("member", "node", "box")
    assert "follows the plan" in capsys.readouterr().out

    second = node("second", devices=1)
    assert lacking(Node, "second") == [f"plan {plan.pk} was made without device second/cpu0"]
    members.cordon(second)
    assert lacking(Node, "second") == [], "a cordoned node only has to be there"
    Device.objects.filter(node=second).update(state="down", detail="its executor ended")
    assert lacking(Node, "second") == ["device second/cpu0 is down (its executor ended)"]
    Node.objects.filter(pk=box.pk).update(channel="")
    with pytest.raises(CommandError, match="node box is not connected"):
        call_command("member", "node", "box")


def test_a_gateway_follows_once_it_is_connected_and_not_behind():
    made = Gateway.objects.create(name="front", state="pending", channel="c", **seen())
    assert lacking(Gateway, "front") == ["gateway front is pending"]
    Gateway.objects.update(state="approved")
    assert lacking(Gateway, "front") == []
    Gateway.objects.update(behind_since=made.created)
    assert lacking(Gateway, "front") == ["gateway front is behind with its configuration"]
