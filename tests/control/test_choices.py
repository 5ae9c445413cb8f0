"""Strategy and routing are switched while the appliance runs: by the environment, by REST, from the next plan on."""

from __future__ import annotations

import dataclasses

import pytest
from django.core import checks
from rest_framework.authtoken.models import Token
from rest_framework.test import APIClient

from registry.faults import InvalidInput
from registry.models import Node, Variant
from scheduler.allocation import strategies
from scheduler.control import choices, requests
from scheduler.control.planner import make_plan
from scheduler.members import presence, push
from scheduler.models import Choice
from tests.control.world import application, node, variant
from tests.registry.conftest import problem
from workers.gateway import routing

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]
URL = "/api/v1/control/"


@pytest.fixture
def another(monkeypatch):
    """A second strategy, which does what the first does."""
    first = strategies.names()[0]
    monkeypatch.setitem(strategies._registry, "another", strategies.get(first))
    return "another"


@pytest.fixture
def client(django_user_model):
    operator = django_user_model.objects.create_user("operator", is_staff=True)
    made = APIClient()
    made.credentials(HTTP_AUTHORIZATION=f"Bearer {Token.objects.create(user=operator).key}")
    return made


@pytest.fixture
def digits(clean_redis):
    clean_redis.set(presence.HEARD, 1)
    node()
    owner = application()
    return owner, variant(owner, "quick", 90, 5), variant(owner, "good", 99, 40)


def asked() -> bool:
    """Whether a plan was asked for since the last look."""
    waits = not requests.request_plan("manual")
    requests.started()
    return waits


def test_what_is_chosen_and_what_could_be_is_told(client):
    told = client.get(URL).json()
    assert told["routing"] == told["defaults"]["routing"] == "late-binding"
    assert told["strategy"] == told["defaults"]["strategy"] in strategies.names()
    assert told["chosen"] == {"strategy": None, "routing": None}
    assert told["allowed"] == {"strategy": list(strategies.names()), "routing": routing.names()}


def test_a_choice_holds_from_the_next_plan_on_which_is_asked_for_at_once(client, digits, another):
    before = make_plan("manual")
    answer = client.patch(URL, {"strategy": another, "routing": "uniform"})
    assert answer.status_code == 200, answer.content
    assert (answer.json()["strategy"], answer.json()["chosen"]["routing"]) == (another, "uniform")
    assert asked()
    assert push.gateway_config(push.read_shared()).plan.routing == before.wire["routing"] == "late-binding"
    plan = make_plan("change")
    assert (plan.strategy, plan.wire["routing"]) == (another, "uniform")
    assert push.gateway_config(push.read_shared()).plan.routing == "uniform"


def test_a_choice_survives_a_restart_and_a_change_of_the_environment_until_it_is_taken_back(client, settings):
    client.patch(URL, {"routing": "shares"})
    settings.NEREUS = dataclasses.replace(settings.NEREUS, routing="round-robin")
    assert choices.current().routing == "shares"
    for nothing in (None, ""):
        client.patch(URL, {"routing": "shares"})
        assert client.patch(URL, {"routing": nothing}).json()["routing"] == "round-robin"
    assert not Choice.objects.exists()


def test_the_same_choice_again_asks_for_no_plan(client):
    client.patch(URL, {"routing": "shares"})
    assert asked()
    client.patch(URL, {"routing": "shares"})
    client.patch(URL, {})
    assert not asked()


@pytest.mark.parametrize(
    ("body", "field", "text"),
    [
        ({"strategy": "best"}, "strategy", f"'best' is not one of {', '.join(strategies.names())}"),
        ({"routing": "best"}, "routing", f"'best' is not one of {', '.join(routing.names())}"),
        ({"routing": "shares", "strategy": "best"}, "strategy", "is not one of"),
        ({"routing": ["shares"]}, "routing", "valid string"),
        ({"routing": True}, "routing", "valid string"),
        ({"routing": "x" * 41}, "routing", "40"),
        ({"rooting": "shares"}, "rooting", "did you mean routing?"),
        ({"allowed": {}}, "allowed", "is not known"),
    ],
)
def test_a_bad_choice_is_refused_by_name_and_nothing_changes(body, field, text, client):
    assert text in problem(client.patch(URL, body, format="json"), 400)[field]
    assert not Choice.objects.exists() and not asked()


def test_only_operators_may_look_and_choose(django_user_model):
    visitor = APIClient()
    visitor.force_login(django_user_model.objects.create_user("visitor"))
    for other in (visitor, APIClient()):
        assert other.get(URL).status_code in (401, 403)
        assert other.patch(URL, {"routing": "shares"}).status_code in (401, 403)
    assert not Choice.objects.exists()


def test_a_choice_that_this_version_does_not_know_gives_way_to_the_default():
    Choice.objects.create(setting="strategy", value="of the future")
    Choice.objects.create(setting="colour", value="blue")
    assert choices.current() == choices.defaults()
    with pytest.raises(InvalidInput, match="routing: 'of the future' is not one of"):
        choices.change({"routing": "of the future"}, "somebody")


@pytest.mark.parametrize(("field", "name"), [("strategy", "NEREUS_STRATEGY"), ("routing", "NEREUS_ROUTING")])
def test_an_environment_that_names_what_there_is_not_stops_the_start(field, name, settings):
    settings.NEREUS = dataclasses.replace(settings.NEREUS, **{field: "best"})
    (error,) = [message for message in checks.run_checks() if message.id.startswith("nereus.")]
    assert f"{name}='best': must be one of" in error.msg


def test_the_wishes_of_an_operator_are_part_of_the_problem(digits):
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
    choices.change({"strategy": "proteus"}, "a test")  # one variant a device, others stand by
    relieved = [d["relief"] for d in make_plan("manual").wire["devices"]]
    assert any(relieved)
    Variant.objects.filter(pk=quick.pk).update(excluded=True)
    plan = make_plan("change")
    assert not any(device["relief"] for device in plan.wire["devices"])
    for device in push.node_config(Node.objects.get().pk, push.read_shared()).plan.devices:
        assert device.standby == (good.pk,)
