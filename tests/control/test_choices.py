"""The stack is chosen by the environment or by REST, and the choice holds from the next plan on."""

from __future__ import annotations

import dataclasses

import pytest
from rest_framework.test import APIClient

from registry.models import Node, Variant
from scheduler.control import choices
from scheduler.control.planner import make_plan
from scheduler.members import contents
from scheduler.models import Choice, Plan
from tests.accounts import account, bearer
from tests.control.world import requested
from tests.registry.conftest import problem
from workers.dispatch import stacks

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]
URL = "/api/v1/control/"


@pytest.fixture
def client():
    operator = account("operator")
    made = APIClient()
    made.credentials(HTTP_AUTHORIZATION=bearer(operator))
    return made


def asked() -> bool:
    return bool(requested())


def configured_stack(plan) -> str:
    config = contents.gateway_config(contents.read().shared)
    assert config.plan.version == plan.pk
    return config.plan.stack


def test_the_choice_and_what_could_be_chosen_are_shown(client):
    shown = client.get(URL).json()
    assert (shown["stack"], shown["default"], shown["chosen"]) == ("nereus", "nereus", None)
    assert [stack["name"] for stack in shown["stacks"]] == list(stacks.LIVE)
    assert all(stack["title"].endswith(".") for stack in shown["stacks"])


def test_a_choice_holds_from_the_next_plan_on_which_is_requested_at_once(client, digits):
    before = make_plan("manual")
    answer = client.patch(URL, {"stack": "clipper-ha"})
    assert answer.status_code == 200, answer.content
    body = answer.json()
    assert (body["stack"], body["chosen"], body["default"]) == ("clipper-ha", "clipper-ha", "nereus")
    assert asked()
    assert configured_stack(before) == "nereus"
    plan = make_plan("change")
    assert (plan.stack, plan.wire["stack"]) == ("clipper-ha", "clipper-ha")
    assert configured_stack(plan) == "clipper-ha"


def test_a_choice_survives_a_restart_and_a_change_of_the_environment_until_it_is_taken_back(client, settings):
    client.patch(URL, {"stack": "proteus"})
    settings.NEREUS = dataclasses.replace(settings.NEREUS, stack="ramsis")
    assert choices.current().name == "proteus"
    for nothing in (None, ""):
        client.patch(URL, {"stack": "proteus"})
        assert client.patch(URL, {"stack": nothing}).json()["stack"] == "ramsis"
    assert not Choice.objects.exists()


def test_the_same_choice_again_requests_no_plan(client):
    client.patch(URL, {"stack": "proteus"})
    assert asked()
    client.patch(URL, {"stack": "proteus"})
    assert not asked()


@pytest.mark.parametrize(
    ("body", "field", "text"),
    [
        ({"stack": "best"}, "stack", f"'best' is not one of {', '.join(stacks.LIVE)}"),
        ({"stack": "proteus-wo-qa"}, "stack", "'proteus-wo-qa' is not one of nereus"),
        ({"stack": ["proteus"]}, "stack", "valid string"),
        ({"stack": True}, "stack", "valid string"),
        ({"stack": "x" * 41}, "stack", "40"),
        ({"strategy": "proteus"}, "strategy", "is not known"),
        ({"stak": "proteus"}, "stak", "did you mean stack?"),
        ({"stacks": []}, "stacks", "is not known"),
        ({}, "stack", "must be given: one of nereus, "),
    ],
)
def test_a_bad_choice_is_rejected_by_name_and_nothing_changes(body, field, text, client):
    assert text in problem(client.patch(URL, body, format="json"), 400)[field]
    assert not Choice.objects.exists() and not asked()


@pytest.mark.parametrize("name", ["of the future", "sommelier"])
def test_a_choice_that_this_version_cannot_serve_with_gives_way_to_the_default(name, client, capsys):
    Choice.objects.create(setting="stack", value=name)
    Choice.objects.create(setting="colour", value="blue")
    assert (choices.current().name, choices.chosen()) == ("nereus", None)
    assert client.get(URL).json()["stack"] == "nereus"
    client.patch(URL, {"stack": "proteus"})
    assert choices.current().name == "proteus"


def test_a_plan_by_a_stack_of_a_newer_release_is_batched_as_by_default(digits):
    plan = make_plan("manual")
    Plan.objects.filter(pk=plan.pk).update(wire={**plan.wire, "stack": "of the future"})
    assert configured_stack(plan) == "of the future"


def test_operator_preferences_are_part_of_the_problem(digits):
    owner, quick, good = digits
    type(owner).objects.update(floor=0.25, weight=2.0)
    Variant.objects.filter(pk=quick.pk).update(pinned=True)
    Variant.objects.filter(pk=good.pk).update(excluded=True)
    problem = make_plan("change").problem
    (planned,) = problem["applications"]
    assert (planned["floor"], planned["weight"]) == (0.25, 2.0)
    assert {v["name"]: (v["pinned"], v["excluded"]) for v in problem["variants"]} == {
        "quick": (True, False),
        "good": (False, True),
    }


def test_an_excluded_variant_stands_by_nowhere(digits):
    _, quick, good = digits
    relieved = [d["relief"] for d in make_plan("manual").wire["devices"]]
    assert any(relieved)
    Variant.objects.filter(pk=quick.pk).update(excluded=True)
    plan = make_plan("change")
    assert not any(device["relief"] for device in plan.wire["devices"])
    for device in contents.node_config(Node.objects.get().pk, contents.read().shared).plan.devices:
        assert device.may_stay == (good.pk,)
