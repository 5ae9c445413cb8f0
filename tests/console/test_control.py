"""The form that chooses a stack, operator preferences, and bursts in the history of plans."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.utils import timezone
from django.utils.html import escape

from console.plans import runs
from scheduler.models import Choice, Plan
from tests.console.conftest import add_plan
from workers.dispatch import stacks

pytestmark = pytest.mark.wide


def text(answer) -> str:
    return answer.content.decode()


def options(html: str, setting: str) -> dict[str, bool]:
    select = re.search(rf'<select name="{setting}".*?</select>', html, re.S)[0]
    return {value: bool(chosen) for value, chosen in re.findall(r'<option value="([^"]*)"( selected)?>', select)}


def test_the_plans_page_offers_every_stack_with_a_sentence_and_shows_the_current_one(staff):
    html = text(staff.get("/plans/"))
    assert list(options(html, "stack")) == ["", *stacks.LIVE]
    assert options(html, "stack")[""] and "now nereus" in html and "default (nereus)" in html
    for name in stacks.LIVE:
        assert escape(stacks.STACKS[name].title) in html
    Choice.objects.create(setting="stack", value="proteus")
    html = text(staff.get("/plans/"))
    assert options(html, "stack") == {name: name == "proteus" for name in ["", *stacks.LIVE]}
    assert "now proteus" in html


def test_a_variants_row_offers_to_pin_or_exclude_it_and_what_it_is_to_release_it(staff, cluster):
    html = text(staff.get("/applications/digits/"))
    bodies = dict(re.findall(r"data-body='([^']+)'[^>]*data-testid=\"((?:pin|exclude)-best)\"", html))
    assert bodies == {'{"pinned": true}': "pin-best", '{"excluded": true}': "exclude-best"}
    type(cluster["best"]).objects.filter(name="best").update(pinned=True)
    html = text(staff.get("/applications/digits/"))
    bodies = dict(re.findall(r"data-body='([^']+)'[^>]*data-testid=\"((?:pin|exclude)-best)\"", html))
    assert bodies == {'{"pinned": false}': "pin-best"}
    assert '<span class="badge plain">pinned</span>' in html
    assert 'name="floor"' in html


def plans(best, *triggers_and_ages: tuple[str, float]) -> list[int]:
    made = []
    for trigger, age in triggers_and_ages:
        plan = add_plan(best, trigger=trigger)
        Plan.objects.filter(pk=plan.pk).update(created=timezone.now() - timedelta(seconds=age))
        made.append(plan.pk)
    return made


def test_a_rise_of_demand_is_one_row_with_a_count(staff, cluster):
    made = plans(
        cluster["best"],
        ("period", 60),
        *[("burst", 50 - i) for i in range(12)],
        ("overload", 37),
        ("period", 30),
        ("burst", 20),
        ("burst", 10),
    )
    html = text(staff.get("/plans/"))
    shown = [int(pk) for pk in re.findall(r'data-testid="plan-row-(\d+)"', html)]
    assert shown == [made[16], made[15], made[14], made[13], made[0]]
    assert re.findall(r'data-testid="plan-run-(\d+)"[^>]*>(\d+) plans since', html) == [(str(made[13]), "13")]
    everything = text(staff.get("/plans/?all=1"))
    assert len(re.findall(r'data-testid="plan-row-(\d+)"', everything)) == len(made)
    assert "plan-run-" not in everything


def test_a_change_of_stack_within_a_burst_shows(cluster):
    plans(cluster["best"], ("burst", 4), ("burst", 3), ("burst", 2))
    Plan.objects.filter(pk=Plan.objects.first().pk).update(stack="nereus")
    assert [len(run) for run in runs(Plan.objects.all())] == [1, 2]


def test_no_plan_is_lost_between_the_pages_of_a_history_full_of_bursts(staff, cluster, monkeypatch):
    monkeypatch.setattr("console.views.plans.PAGE", 3)
    monkeypatch.setattr("console.views.plans.LOOKED_AT", 10)
    triggers = (["burst"] * 7 + ["period"]) * 4
    made = plans(cluster["best"], *[(trigger, 100 - i) for i, trigger in enumerate(triggers)])
    counted, before = 0, ""
    for _ in range(len(made)):
        html = text(staff.get(f"/plans/{before}"))
        for row in re.findall(r'<tr data-testid="plan-row-.*?</tr>', html, re.S):
            run = re.search(r">(\d+) plans since", row)
            counted += int(run[1]) if run else 1
        older = re.search(r'href="\?before=(\d+)"', html)
        if older is None:
            break
        before = f"?before={older[1]}"
    assert counted == len(made)


def test_plans_that_changed_nothing_are_one_row_with_a_count(staff, cluster):
    made = plans(cluster["best"], ("period", 90), *[("period", 60 - i) for i in range(5)], ("change", 5))
    Plan.objects.filter(pk__in=made[1:6]).update(changed=False)
    html = text(staff.get("/plans/"))
    assert [int(pk) for pk in re.findall(r'data-testid="plan-row-(\d+)"', html)] == [made[6], made[5], made[0]]
    assert f'data-testid="plan-quiet-{made[5]}"' in html
    assert re.search(r"5 plans since <time [^>]+>[^<]+</time> that changed nothing", html)


def test_a_plans_page_tells_its_trail_and_rest_says_the_same(staff, cluster):
    made = plans(cluster["best"], ("period", 90), ("change", 5))
    newest = Plan.objects.get(pk=made[1])
    newest.allocation = {**newest.allocation, "prices": {"cpu-a": 54.0}}
    newest.save()
    html = text(staff.get(f"/plans/{made[1]}/"))
    trail = staff.get(f"/api/v1/plans/{made[1]}/trail/").json()
    assert escape(trail["sentence"]) in html and all(escape(reason) in html for reason in trail["limit"])
    assert trail["prices"][0]["sentence"] == "One more cpu-a would add up to 1.8 points of accuracy."
    assert escape(trail["prices"][0]["sentence"]) in html
    assert trail["previous"] == made[0]
    assert staff.get(f"/api/v1/plans/{2**70}/trail/").status_code == 404
    Plan.objects.filter(pk=made[1]).update(inputs={}, reasons=[])
    html = text(staff.get(f"/plans/{made[1]}/"))
    assert "Not known: the release" in html and "no device is idle" not in html
