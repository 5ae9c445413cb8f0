"""Answers to imagined changes over REST: asked, planned, simulated, applied."""

from dataclasses import replace

import pytest
from django.conf import settings
from django.test import Client

from registry.models import Application, Device, Node, Variant
from scheduler import tasks, telemetry
from scheduler.models import WhatIf
from scheduler.promises import present, what_if
from scheduler.promises.changes import Changes
from tests.accounts import signed_in
from tests.control.world import application, variant
from tests.registry.conftest import problem

from .conftest import report

pytestmark = pytest.mark.django_db(transaction=True)
URL = "/api/v1/what-ifs/"


@pytest.fixture
def operator(db) -> Client:
    return signed_in()


def ask(client: Client, **changes) -> dict:
    answer = client.post(URL, changes, content_type="application/json")
    assert answer.status_code == 202, answer.content
    assert answer.json()["state"] == "waiting"
    return answer.json()


def apply(client: Client, asked: dict, **body):
    return client.post(f"{URL}{asked['id']}/apply/", body, content_type="application/json")


def answered(client: Client, **changes) -> dict:
    asked = ask(client, **changes)
    tasks.what_if()
    found = client.get(f"{URL}{asked['id']}/").json()
    assert found["state"] == "done", found["error"]
    return found


def test_the_plan_is_made_first_and_then_its_promise(cluster, operator):
    asked = ask(operator, demand_factor=2)
    what_if.plan_waiting()
    planned = operator.get(f"{URL}{asked['id']}/").json()
    assert planned["state"] == "simulating" and planned["promise"] == {}
    assert planned["plan"]["demand"] > 1.5 * planned["present_plan"]["demand"]
    assert planned["plan"]["applications"]["digits"]["left_out"] == pytest.approx(0, abs=1e-6)
    tasks.what_if()
    done = operator.get(f"{URL}{asked['id']}/").json()
    assert (done["state"], done["progress"], done["applicable"]) == ("done", 1.0, False)
    low, high = done["promise"]["digits"]["accuracy"]["interval"]
    assert low <= done["promise"]["digits"]["accuracy"]["expected"] <= high
    assert done["present_promise"]["digits"]["items_per_s"] == pytest.approx(20, rel=0.3)
    assert done["promise"]["digits"]["items_per_s"] == pytest.approx(40, rel=0.3)
    assert "problem" not in done["plan"] and "problem" not in WhatIf.objects.get().plan


def test_both_columns_serve_the_same_demand_whatever_arrives_after_the_question(cluster, operator):
    # The plan in force was made for another demand.
    for ago in range(30, 0, -1):
        report(ago, 60)
    asked = ask(operator, remove_devices=["left/cpu0"])
    for ago in range(30, 0, -1):
        report(ago, 600)
    tasks.what_if()
    found = operator.get(f"{URL}{asked['id']}/").json()
    before, after = (found[column]["applications"]["digits"] for column in ("present_plan", "plan"))
    assert before["demand"] == after["demand"] > 1.5 * cluster["plan"].demand
    before, after = (found[column]["digits"] for column in ("present_promise", "promise"))
    assert before["items_per_s"] == after["items_per_s"]
    assert found["present_plan"]["accuracy"] >= found["plan"]["accuracy"] - 1e-9, "a lost device helps nobody"
    base = found["plan"]["base"]
    assert base["items_per_s"]["digits"] == pytest.approx(before["items_per_s"], rel=0.5)
    assert 55 <= base["seconds"] <= 61 and base["measured"][:4].isdigit()


@pytest.mark.parametrize("stack", ["nereus", "proteus", "ramsis"])
def test_the_same_question_about_the_same_snapshot_has_the_same_answer(cluster, operator, settings, stack):
    settings.NEREUS = replace(settings.NEREUS, stack=stack)
    asked = ask(operator, demand_factor=30)
    row = WhatIf.objects.get(pk=asked["id"])
    for _ in range(4):
        WhatIf.objects.create(**{f.name: getattr(row, f.name) for f in WhatIf._meta.fields if f.name != "id"})
    tasks.what_if()
    answers = [
        (one.state, one.plan, one.present_plan, one.promise, one.present_promise) for one in WhatIf.objects.all()
    ]
    for _, plan, before, *_ in answers:
        del plan["solve_s"], before["solve_s"]
    assert answers == answers[:1] * 5 and answers[0][0] == "done"


def test_without_changes_both_columns_are_alike(cluster, operator):
    found = answered(operator)
    assert found["plan"]["applications"] == found["present_plan"]["applications"]
    assert found["promise"] == found["present_promise"]


def test_quiet_and_deleted_applications_are_in_the_answer(cluster, operator):
    variant(application("quiet"), "only", 90, 5)
    gone = application("gone")
    variant(gone, "only", 90, 5)
    asked = ask(operator, demand_factor=2)
    gone.variants.all().delete()
    gone.delete()
    tasks.what_if()
    found = operator.get(f"{URL}{asked['id']}/").json()
    assert found["state"] == "done", found["error"]
    assert set(found["plan"]["applications"]) == {"digits", "gone", "quiet"}
    assert set(found["promise"]) == set(found["present_promise"]) == {"digits"}
    assert found["plan"]["base"]["items_per_s"]["quiet"] == 0.0


def test_a_quiet_application_can_be_imagined_busy(cluster, operator):
    variant(application("quiet"), "only", 90, 5)
    found = answered(operator, demand={"quiet": 50.0})
    assert "quiet" not in found["present_promise"]
    assert found["promise"]["quiet"]["items_per_s"] == pytest.approx(50, rel=0.3)
    assert (
        found["plan"]["applications"]["quiet"]["demand"] > 40 > found["present_plan"]["applications"]["quiet"]["demand"]
    )


def test_imagined_demand_is_estimated_as_plans_estimate_it(clean_redis, cluster):
    clean_redis.delete(telemetry.GATEWAY_STREAM)
    for ago in range(300, 0, -1):
        report(ago, 5 if ago % 60 < 40 else 60)
    snapshot = present.Snapshot.take()
    rate = snapshot.recorded.rate("digits")
    # Nearly the same demand has nearly the same estimate.
    (was,), (now,) = (
        snapshot.imagined(changes).applications for changes in (Changes(), Changes(demand={"digits": rate}))
    )
    assert (now.demand, now.expected) == (pytest.approx(was.demand, rel=0.05), pytest.approx(was.expected, rel=0.05))
    # Where nothing came, arrivals are Poisson.
    clean_redis.delete(telemetry.GATEWAY_STREAM)
    (now,) = present.Snapshot.take().imagined(Changes(demand={"digits": 40.0})).applications
    assert 20 < now.expected < now.demand < 80


def test_demand_beyond_all_devices_is_left_out_and_violated(cluster, operator):
    found = answered(operator, demand={"digits": 1200.0})
    # Four devices at 5 ms a row serve 800 items/s.
    assert found["promise"]["digits"]["violations"]["expected"] > 0.2
    assert found["plan"]["applications"]["digits"]["left_out"] > 300


def test_devices_come_and_go(cluster, operator):
    found = answered(operator, remove_devices=["left/cpu0"], cordon=["right"], add_devices={"cpu-test-1c": 6})
    assert (found["present_plan"]["devices"], found["plan"]["devices"]) == (4, 7)
    assert Node.objects.filter(cordoned_at=None).count() == 2


def test_an_excluded_variant_is_not_placed(cluster, operator):
    found = answered(operator, variants={"digits/good": "excluded"})
    assert set(found["plan"]["applications"]["digits"]["variants"]) == {"quick"}
    assert found["promise"]["digits"]["accuracy"]["expected"] == pytest.approx(90 / 99 * 100)


def test_changes_that_can_be_ordered_are_applied(cluster, operator):
    found = answered(operator, slo_ms={"digits": 200}, variants={"digits/quick": "pinned"}, cordon=["left"])
    answer = apply(operator, found, force=True)
    assert answer.status_code == 200, answer.content
    assert answer.json()["applied"] and not answer.json()["applicable"]
    assert Application.objects.get().slo_ms == 200
    assert Variant.objects.get(name="quick").pinned
    assert Node.objects.get(name="left").cordoned_at
    again = apply(operator, found)
    assert again.status_code == 409 and "already" in again.json()["detail"]


def test_one_that_was_cancelled_is_not_applied(cluster, operator):
    found = answered(operator, slo_ms={"digits": 200})
    assert found["applicable"]
    WhatIf.objects.update(state=WhatIf.State.SIMULATING)
    assert operator.delete(f"/api/v1/what-ifs/{found['id']}/").status_code == 204
    assert not operator.get(f"/api/v1/what-ifs/{found['id']}/").json()["applicable"]
    answer = apply(operator, found)
    assert answer.status_code == 409 and "Cancelled by" in answer.json()["detail"]
    assert Application.objects.get().slo_ms == 300


def test_a_node_that_alone_serves_is_cordoned_by_force_only(cluster, operator):
    Device.objects.filter(node=cluster["right"]).update(state=Device.State.DOWN)
    found = answered(operator, slo_ms={"digits": 200})
    WhatIf.objects.update(changes={**WhatIf.objects.get().changes, "cordon": ["left"]})
    answer = apply(operator, found)
    assert answer.status_code == 409 and "no other node" in answer.json()["detail"]
    assert Application.objects.get().slo_ms == 300
    answer = apply(operator, found, force=True)
    assert answer.status_code == 200 and Application.objects.get().slo_ms == 200


def test_nothing_is_applied_to_another_state(cluster, operator):
    found = answered(operator, slo_ms={"digits": 200}, cordon=["left"])
    Variant.objects.filter(name="good").update(excluded=True)
    answer = apply(operator, found)
    assert answer.status_code == 409 and "ask again" in answer.json()["detail"]
    assert Application.objects.get().slo_ms == 300
    assert not WhatIf.objects.get().applied


def test_an_order_that_is_refused_leaves_nothing_half_done(cluster, operator):
    found = answered(operator, slo_ms={"digits": 200}, variants={"digits/quick": "pinned"})
    Variant.objects.filter(name="quick").update(state=Variant.State.READY)
    # Every change but the last is undone with it.
    row = WhatIf.objects.get(pk=found["id"])
    WhatIf.objects.filter(pk=row.pk).update(changes={**row.changes, "variants": {"digits/gone": "pinned"}})
    answer = apply(operator, found)
    assert answer.status_code == 400 and "variants.digits/gone" in answer.json()["detail"]
    assert Application.objects.get().slo_ms == 300


def test_what_is_only_imagined_cannot_be_applied(cluster, operator):
    asked = ask(operator, demand_factor=2)
    answer = apply(operator, asked)
    assert answer.status_code == 409 and "imagined" in answer.json()["detail"]
    early = ask(operator, slo_ms={"digits": 250})
    answer = apply(operator, early)
    assert answer.status_code == 409 and "no plan yet" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"demand_factor": 101}, "demand_factor"),
        ({"variants": {"digits/good": "best"}}, "variants.digits/good"),
        ({"cordon": ["left", "right"]}, "cordon"),
        ({"factor": 2}, "factor"),
    ],
)
def test_the_impossible_is_refused_with_its_field(cluster, operator, changes, field):
    answer = operator.post(URL, changes, content_type="application/json")
    assert answer.status_code == 400
    assert field in [error["field"] for error in answer.json()["errors"]], answer.content
    assert not WhatIf.objects.exists()


@pytest.mark.parametrize("field", ["demand", "slo_ms", "variants", "add_devices"])
@pytest.mark.parametrize("given", [5, "digits", ["digits"], True])
def test_values_by_name_must_be_an_object(cluster, operator, field, given):
    answer = operator.post(URL, {field: given}, content_type="application/json")
    assert problem(answer, 400) == {field: "Must be an object with a value by name."}


def test_a_what_if_that_nobody_answers_fails_at_last(cluster, operator, later):
    asked = ask(operator, demand_factor=2)
    later(what_if.LOST_S + 1)
    found = operator.get(f"{URL}{asked['id']}/").json()
    assert found["state"] == "failed" and "Ask again" in found["error"]


@pytest.mark.parametrize("changes", [{"demand_factor": 2.0}, {"demand": {"unknown": 1.0}}], ids=["plans", "fails"])
def test_a_what_if_that_was_given_up_while_it_was_planned_stays_so(cluster, operator, changes):
    """A worker that was stalled goes on with a what-if that others have given up."""
    WhatIf.objects.filter(pk=ask(operator, demand_factor=2)["id"]).update(state="planning", changes=changes)
    taken = WhatIf.objects.get()
    WhatIf.objects.update(state="failed", error="No sign of the worker")
    with what_if._failures(taken):
        what_if._plan(taken)
    taken.refresh_from_db()
    assert (taken.state, taken.error, set(taken.plan)) == ("failed", "No sign of the worker", {"snapshot"})


def test_one_message_answers_all_that_wait_and_none_of_them_is_lost_meanwhile(cluster, operator, later):
    asked = [ask(operator, demand_factor=factor) for factor in (1.5, 2)]
    later(0.6 * what_if.LOST_S)
    what_if.plan_waiting()
    later(0.6 * what_if.LOST_S)
    assert what_if.give_up_lost() == 0
    for ago in range(20, 0, -1):
        report(ago)
    # The message of the first has expired; the second's, or the next periodic promise, answers both.
    tasks.what_if()
    states = [operator.get(f"{URL}{one['id']}/").json()["state"] for one in asked]
    assert states == ["done", "done"]


def test_a_what_if_that_a_worker_left_behind_is_not_taken_again(cluster, operator, later):
    asked = ask(operator, demand_factor=2)
    what_if.plan_waiting()
    assert what_if._take().pk == asked["id"]
    tasks.what_if()
    assert operator.get(f"{URL}{asked['id']}/").json()["state"] == "simulating"
    later(what_if.LOST_S + 1)
    what_if.plan_waiting()
    assert operator.get(f"{URL}{asked['id']}/").json()["state"] == "failed"


@pytest.mark.parametrize("stopped_in", ["planning", "simulating"])
def test_a_what_if_whose_worker_was_stopped_is_resumed_at_its_next_start_but_only_once(cluster, operator, stopped_in):
    asked = ask(operator, demand_factor=2)
    own = settings.NEREUS.instance
    if stopped_in == "planning":
        WhatIf.objects.update(state="planning", holder=own)
    else:
        what_if.plan_waiting()
        assert what_if._take().pk == asked["id"]
    WhatIf.objects.update(holder="another-home")
    what_if.resume()
    tasks.what_if()
    assert operator.get(f"{URL}{asked['id']}/").json()["state"] == stopped_in, "another home's worker has it"
    WhatIf.objects.update(holder=own)
    what_if.resume()
    tasks.what_if()
    assert operator.get(f"{URL}{asked['id']}/").json()["state"] == "done"
    WhatIf.objects.update(holder=own, state=stopped_in, progress=what_if.TAKEN)
    what_if.resume()
    found = operator.get(f"{URL}{asked['id']}/").json()
    assert found["state"] == "failed" and "ended twice" in found["error"]


@pytest.mark.parametrize("snapshot", [{}, {"snapshot": {"of": "an earlier release"}}])
def test_what_waited_during_an_upgrade_fails_with_what_to_do(cluster, operator, snapshot):
    asked = ask(operator, demand_factor=2)
    WhatIf.objects.update(plan=snapshot)
    tasks.what_if()
    found = operator.get(f"{URL}{asked['id']}/").json()
    assert found["state"] == "failed" and found["error"].startswith("This was asked before the appliance was upgraded.")


def test_more_than_can_be_simulated_has_a_plan_and_says_so(cluster, operator):
    asked = ask(operator, demand={"digits": 1_000_000})
    tasks.what_if()
    found = operator.get(f"{URL}{asked['id']}/").json()
    assert found["state"] == "failed" and "too many to simulate" in found["error"]
    assert found["plan"]["applications"]["digits"]["left_out"] > 1000


def test_a_what_if_is_a_task_that_owners_cancel(cluster, operator):
    def listed() -> list[dict]:
        return [one for one in operator.get("/api/v1/tasks/").json()["results"] if one["kind"] == "simulation"]

    waiting, simulated = ask(operator, demand_factor=2), ask(operator, demand_factor=3)
    assert [(one["by"], one["state"]) for one in listed()] == [("operator", "waiting")] * 2
    owner = signed_in("model owner")
    assert owner.delete(listed()[0]["cancel"]).status_code == 204
    what_if.plan_waiting()
    (task,) = listed()
    assert (task["key"], task["state"], task["progress"]) == (f"simulation:{simulated['id']}", "waiting", None)
    assert task["detail"] == "the plan is made, and waits for its simulation"
    assert what_if._take().pk == simulated["id"]
    (task,) = listed()
    assert (task["state"], task["progress"]) == ("running", what_if.TAKEN)
    # Cancelled while the worker has it: its answer is not stored.
    row = WhatIf.objects.get(pk=simulated["id"])
    assert owner.delete(task["cancel"]).status_code == 204
    with pytest.raises(what_if.Withdrawn):
        what_if._progress(row, 0.0)(0.5)
    tasks.what_if()
    for asked in (waiting, simulated):
        found = operator.get(f"{URL}{asked['id']}/").json()
        assert (found["state"], found["error"], found["promise"]) == ("failed", "Cancelled by model-owner.", {})
        assert owner.delete(f"{URL}{asked['id']}/").status_code == 409
    row.refresh_from_db()
    assert row.plan["applications"] and not row.plan.keys() & set(what_if.WORKING), "what nobody needs any more"
    assert listed() == []
