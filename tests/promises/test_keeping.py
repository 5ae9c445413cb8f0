"""Promises for the plan in force are stored, compared with what came, and corrected by how past ones fared."""

from dataclasses import replace

import pytest

from registry import clock
from registry.models import Variant
from scheduler import tasks
from scheduler.models import Promise
from scheduler.promises import keeping, present
from scheduler.promises.intervals import LEAST_PAST

from .conftest import report

pytestmark = pytest.mark.django_db(transaction=True)
State = Promise.State


def test_a_promise_for_the_plan_in_force_is_stored(cluster):
    tasks.promise()
    promise = Promise.objects.get()
    assert (promise.plan, promise.stack, promise.state) == (cluster["plan"].pk, "nereus", State.WAITING)
    digits = promise.expected["digits"]
    assert 10 < digits["items_per_s"] < 30
    for figure in ("accuracy", "violations"):
        low, high = digits[figure]["interval"]
        assert low <= digits[figure]["expected"] <= high
    assert digits["violations"]["expected"] < 0.05


def test_a_promise_plans_ahead_as_the_control_plane_does(cluster, settings):
    settings.NEREUS = replace(settings.NEREUS, plan_period_s=7.0, demand_quantile=0.9)
    _, world = present.present_world()
    assert (world.control.period_s, world.quantile) == (7.0, 0.9)


def test_without_arrivals_nothing_is_promised(clean_redis, cluster):
    clean_redis.delete("nereus:gateway_seconds")
    clean_redis.flushall()
    tasks.promise()
    assert not Promise.objects.exists()
    with pytest.raises(present.NothingToPromise, match="0 s of arrivals"):
        present.present_world()


def past(
    stack="nereus", state=State.WAITING, ago=50.0, window_s=10, interval=(97.0, 99.0), promised=None, **fields
) -> Promise:
    figures = {
        "items_per_s": 20.0,
        "accuracy": {"expected": 98.0, "interval": list(promised or interval), "simulated": list(interval)},
        "violations": {"expected": 0.0, "interval": [0.0, 0.1], "simulated": [0.0, 0.1]},
    }
    return Promise.objects.create(
        stamp=clock.stamp(clock.steady() - ago),
        window_s=window_s,
        windows=19,
        wall_s=1.0,
        plan=1,
        stack=stack,
        state=state,
        expected={"digits": figures},
        **{"index": present.check_index(), **fields},
    )


def test_what_came_in_the_window_is_compared(clean_redis, cluster):
    clean_redis.flushall()
    for ago in range(70, 0, -1):
        # Outside of the window everything was late.
        report(ago, 20, 15 if 40.5 < ago < 49.5 else 0, accuracy=98.5)
    promise = past()
    assert keeping.compare() == 1
    promise.refresh_from_db()
    assert promise.state == State.COMPARED
    came = promise.observed["digits"]
    assert came["accuracy"] == pytest.approx(98.5)
    # A second at either end may belong to it or not.
    assert came["violations"] == pytest.approx(0.25, abs=0.16)
    found = keeping.calibration([promise])["digits"]
    assert keeping.calibration([promise])[keeping.ALL] == found
    assert (found["accuracy"].held, found["accuracy"].compared) == (1, 1)
    assert (found["violations"].held, found["violations"].share) == (0, 0.0)
    assert keeping.compare() == 0


def test_a_promise_waits_until_its_window_is_over_and_reported(cluster):
    promise = past(ago=10.0 + keeping.REPORTED_S - 1.0)
    assert keeping.compare() == 0
    promise.refresh_from_db()
    assert promise.state == State.WAITING


def test_a_promise_whose_conditions_changed_is_void(cluster):
    promise = past()
    Variant.objects.filter(name="good").update(excluded=True)
    assert keeping.compare() == 1
    promise.refresh_from_db()
    assert (promise.state, promise.observed) == (State.VOID, {})


def test_upkeep_compares_a_promise_once_and_what_changes_later_does_not_matter(clean_redis, cluster, later):
    tasks.promise()
    promise = Promise.objects.get()
    later(promise.window_s + keeping.REPORTED_S)
    for ago in range(promise.window_s, 0, -1):
        report(ago + keeping.REPORTED_S)
    tasks.tend()
    promise.refresh_from_db()
    assert promise.state == State.COMPARED and promise.observed["digits"]["items"] > 0
    Variant.objects.filter(name="good").update(excluded=True)
    assert keeping.compare() == 0


def test_intervals_are_widened_as_past_promises_missed(cluster):
    observed = {"digits": {"items": 200, "accuracy": 95.0, "violations": 0.05}}
    for _ in range(LEAST_PAST):
        past(state=State.COMPARED, observed=observed, promised=(94.0, 99.0))
        past(state=State.COMPARED, observed=observed, stack="proteus", interval=(0.0, 1.0))
    by = keeping.corrections("nereus")
    assert by[("digits", "accuracy")] == pytest.approx(2.0)
    # All of them had room: the interval gets narrower.
    assert by[("digits", "violations")] == pytest.approx(-0.05)
    tasks.promise()
    accuracy = Promise.objects.first().expected["digits"]["accuracy"]
    assert accuracy["interval"][0] == pytest.approx(max(0.0, accuracy["simulated"][0] - 2.0))


def test_after_misses_in_a_row_nothing_is_ruled_out(cluster):
    for _ in range(6):
        past(state=State.COMPARED, observed={"digits": {"items": 200, "accuracy": 95.0, "violations": 0.05}})
    tasks.promise()
    assert Promise.objects.first().expected["digits"]["accuracy"]["interval"] == [0.0, 100.0]


def test_a_change_of_anything_that_plans_depend_on_changes_the_index(cluster):
    before = present.check_index()
    assert present.check_index() == before
    cluster["application"].slo_ms += 1
    cluster["application"].save()
    assert present.check_index() != before
