"""Learning forecasters live, with their state in Redis.

The state is kept between plans and through clocks that are set, and plans show the forecaster.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from django.conf import settings
from django.test import override_settings

from registry import clock
from scheduler import live, telemetry
from scheduler.control import forecasters
from scheduler.control.learned import NEXT_MINUTE, ForecastTarget, start, target_of
from scheduler.control.planner import make_plan
from tests.control.world import application, listening, node, variant
from workers.forecasters import LEARNED, MINUTE, TREND
from workers.protocol.control import GatewayStats
from workers.protocol.specs import ApplicationStats

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]
TARGET = ForecastTarget(30)


def seconds(rate: float, length: int = 270) -> list[tuple[int, dict[str, float]]]:
    now = int(clock.wall())
    counts = np.random.default_rng(1).poisson(rate, length)
    return [(now - length + i, {"a": float(count)}) for i, count in enumerate(counts)]


def stored() -> dict[str, str]:
    return live.client().hgetall(forecasters.LEARNED)


def test_what_was_learned_is_kept_for_the_next_plan():
    first = forecasters.coefficients(seconds(40), ["a"], TARGET, 0.95)["a"]
    kept = stored()["a"]
    assert not np.allclose(first, start(TARGET, 0.95))
    # Nothing new has come since: the next plan forecasts by the same coefficients.
    again = forecasters.coefficients(seconds(40)[:-40], ["a"], TARGET, 0.95)["a"]
    assert again == pytest.approx(first, abs=1e-3)
    assert stored()["a"] == kept


def test_what_was_learned_is_read_without_learning():
    assert forecasters.coefficients(None, ["a"], TARGET, 0.95)["a"] == pytest.approx(start(TARGET, 0.95))
    assert not stored()
    forecasters.coefficients(seconds(40), ["a"], TARGET, 0.95)
    kept = stored()
    found = forecasters.coefficients(None, ["a", "b"], TARGET, 0.95)
    assert not np.allclose(found["a"], start(TARGET, 0.95)) and found["b"] == pytest.approx(start(TARGET, 0.95))
    assert forecasters.coefficients(None, [], TARGET, 0.95) == {} and stored() == kept


def test_after_redis_was_emptied_it_starts_anew_from_what_is_recorded(clean_redis):
    first = forecasters.coefficients(seconds(40), ["a"], TARGET, 0.95)["a"]
    live.client().delete(forecasters.LEARNED, forecasters.ABOUT)
    assert forecasters.coefficients(seconds(40), ["a"], TARGET, 0.95)["a"] == pytest.approx(first, abs=1e-3)


def test_another_target_or_quantile_starts_anew():
    forecasters.coefficients(seconds(40), ["a"], TARGET, 0.95)
    for target, quantile in ((ForecastTarget(10), 0.95), (NEXT_MINUTE, 0.95), (NEXT_MINUTE, 0.8)):
        found = forecasters.coefficients([], ["a"], target, quantile)["a"]
        assert found == pytest.approx(start(target, quantile))


def test_a_stored_state_that_cannot_be_read_is_replaced():
    forecasters.coefficients(seconds(40), ["a"], TARGET, 0.95)
    for damaged in ("not base64!", "AAAA", ""):
        live.client().hset(forecasters.LEARNED, "a", damaged)
        found = forecasters.coefficients([], ["a"], TARGET, 0.95)["a"]
        assert found == pytest.approx(start(TARGET, 0.95))


def test_an_earlier_boots_moments_are_not_compared_with_this_ones():
    forecasters.coefficients(seconds(40), ["a"], TARGET, 0.95)
    about = live.client().get(forecasters.ABOUT)
    live.client().set(forecasters.ABOUT, about.replace(clock.boot(), "0" * clock.BOOT_DIGITS))
    kept = forecasters.coefficients([], ["a"], TARGET, 0.95)["a"]
    assert not np.allclose(kept, start(TARGET, 0.95))


def test_regressions_of_applications_that_are_gone_are_deleted():
    forecasters.coefficients(seconds(40), ["a", "b"], TARGET, 0.95)
    assert set(stored()) == {"a", "b"}
    forecasters.coefficients(seconds(40), ["b"], TARGET, 0.95)
    assert set(stored()) == {"b"}
    assert forecasters.coefficients([], [], TARGET, 0.95) == {}
    assert stored() == {}


def test_each_forecaster_has_its_target():
    assert target_of(TREND, 30) is None
    assert target_of(LEARNED, 30) == ForecastTarget(30)
    assert target_of(LEARNED, 0.5) == ForecastTarget(1)
    assert target_of(LEARNED, 3600) == ForecastTarget(30)
    assert target_of(MINUTE, 30) == NEXT_MINUTE


@pytest.mark.parametrize("forecaster", [TREND, LEARNED, MINUTE])
def test_a_plan_is_made_by_the_chosen_forecaster_and_says_what_it_expects(clean_redis, forecaster):
    listening(clean_redis)
    node()
    variant(application(), "quick", 90, 5)
    now = clock.wall()
    for ago in range(200, 0, -1):
        counts = {"digits": ApplicationStats(arrived=20, arrived_rows=20)}
        second = telemetry.gateway_second("g", GatewayStats(applications=counts, ready=True), now - ago)
        telemetry.record(telemetry.GATEWAY_STREAM, second)
    chosen = dataclasses.replace(settings.NEREUS, forecaster=forecaster)
    with override_settings(NEREUS=chosen):
        plan = make_plan("manual")
    (planned,) = plan.problem["applications"]
    assert 18 < planned["expected"] <= planned["demand"] < 40
    assert bool(stored()) == (forecaster != TREND)
