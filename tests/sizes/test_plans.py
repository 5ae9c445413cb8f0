"""Plans count on the largest size while nothing is known, and on the mix once it is."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry import clock, profiling
from registry.models import ProfileLatency, Variant
from scheduler import telemetry
from scheduler.allocation.capacity import dedicated_capacity
from scheduler.control import choices, sizes
from scheduler.control.planner import make_plan
from scheduler.control.wire import application_spec
from scheduler.members import contents
from scheduler.profiling import dispatch, results
from tests.control import world
from tests.registry.test_shapes import signature
from tests.wild import models
from workers.protocol import control, specs
from workers.protocol.specs import ApplicationStats, ProfilePoint


def points(ms: float, size: int = 0, batches=(1, 2, 4, 8)) -> tuple[ProfilePoint, ...]:
    return tuple(ProfilePoint(b, *[ms * b / 1000] * 3, 20, size) for b in batches)


# --- what arrives ---------------------------------------------------------------------------------------------------


def test_shares_are_of_what_arrived_and_what_is_longer_ago_counts_less():
    seconds = [(100, {"a": {0: 1, 128: 3}}), (100, {"b": {0: 5}})]
    assert sizes.mixes(seconds, {}, 100) == {"a": {0: 0.25, 128: 0.75}, "b": {0: 1}}
    (mix,) = sizes.mixes([(0, {"a": {0: 10}}), (20, {"a": {128: 10}})], {}, 20).values()
    assert mix == {0: pytest.approx(1 / 3), 128: pytest.approx(2 / 3)}


def test_a_class_that_is_asked_for_now_and_then_stays_in_the_mix():
    assert sizes.mixes([(100, {"a": {128: 7}})], {"a": {0, 128}}, 100) == {"a": {0: 0.0, 128: 1.0}}


def test_while_nothing_arrives_the_largest_class_of_late_counts():
    assert sizes.mixes([], {"a": {16, 128}, "b": {16, 0}}, 100) == {"a": {16: 0.0, 128: 1.0}, "b": {16: 0.0, 0: 1.0}}


def test_of_what_did_not_arrive_nothing_is_known():
    assert sizes.mixes([(1, {"a": {0: 0}}), (2, {"b": {}}), (3, {})], {"c": set()}, 3) == {}


# --- what a plan may count on ---------------------------------------------------------------------------------------

PROFILE = (*points(40.0), *points(5.0, 128))


def test_while_nothing_is_known_a_plan_counts_on_the_largest():
    profile = sizes.profile(PROFILE, sizes.ANY)
    assert profile.points == profile.longest and profile.points[0] == (1, 0.04)


def test_a_device_serves_what_the_mix_takes_in_batches_that_the_slowest_class_has_time_for():
    cheaper = {1: 1.0, 2: 1.5, 4: 2.5, 8: 4.5}
    known = tuple(
        ProfilePoint(b, *[ms * more / 1000] * 3, 20, size)
        for ms, size in ((40.0, 0), (5.0, 128))
        for b, more in cheaper.items()
    )
    profile = sizes.profile(known, {0: 0.25, 128: 0.75})
    capacity = dedicated_capacity(profile, 0.2)
    # At the largest size 4 rows take 100 ms, half of the SLO, and 8 rows 180.
    assert capacity.batch == 4
    assert capacity.rate == pytest.approx(4 / (2.5 * (0.25 * 0.04 + 0.75 * 0.005)))


def test_a_class_that_nobody_asks_for_restricts_nothing():
    capacity = dedicated_capacity(sizes.profile(PROFILE, {128: 1.0}), 0.05)
    assert capacity.rate == pytest.approx(200)
    assert dedicated_capacity(sizes.profile(PROFILE, {0: 0.01, 128: 0.99}), 0.05) is None


def test_batches_count_that_were_measured_in_every_class_of_the_mix():
    profile = sizes.profile((*points(40.0, batches=(1, 2)), *points(5.0, 128)), {0: 0.5, 128: 0.5})
    assert [batch for batch, _ in profile.points] == [1, 2]


mixtures = st.dictionaries(st.sampled_from([0, 16, 64, 128]), st.floats(0.01, 1.0), min_size=1).map(
    lambda shares: {size: share / sum(shares.values()) for size, share in shares.items()}
)


@given(mixtures, st.lists(st.floats(1, 100), min_size=4, max_size=4).map(sorted), st.floats(0.05, 1.0))
def test_a_mix_never_promises_more_than_its_quickest_class_nor_batches_too_slow_for_its_slowest(mix, ms, slo_s):
    by_class = dict(zip((16, 64, 128, 0), ms, strict=True))
    known = tuple(point for size, row in by_class.items() for point in points(row, size))
    profile = sizes.profile(known, mix)
    capacity = dedicated_capacity(profile, slo_s)
    slowest, quickest = max(by_class[size] for size in mix), min(by_class[size] for size in mix)
    if capacity is None:
        assert slowest / 1000 > slo_s / 2
    else:
        assert capacity.batch * slowest / 1000 <= slo_s / 2 * (1 + 1e-9)
        assert 1000 / slowest * (1 - 1e-9) <= capacity.rate <= 1000 / quickest * (1 + 1e-9)


# --- the control loop -----------------------------------------------------------------------------------------------

looped = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


def texts(slo_ms: float = 200.0):
    made = world.application("texts", slo_ms)
    made.signature, made.sizes = signature(models.TOKENS), [128, 512]
    made.save()
    return made


def sized_variant(owner, name: str, accuracy: float, long_ms: float, short_ms: float) -> Variant:
    """A row takes ``long_ms`` up to the largest size, ``short_ms`` up to 128."""
    made = world.variant(owner, name, accuracy, long_ms)
    profile = made.profiles.get()
    for point in points(short_ms, 128):
        took = point.p50_s * 1000
        ProfileLatency.objects.create(
            profile=profile, size=128, batch=point.batch, p50_ms=took, p95_ms=took, mean_ms=took, samples=20
        )
    return made


def arrive(items: dict[int, int], seconds: int = 20) -> None:
    """A gateway's reports of the last seconds: items a second by size class."""
    now, rate = time.time(), sum(items.values())
    for ago in range(seconds, 0, -1):
        counts = {"texts": ApplicationStats(arrived=rate, arrived_rows=rate, arrived_by_size=items)}
        stats = control.decode_from_gateway(control.encode(control.GatewayStats(applications=counts, ready=True)))
        telemetry.record(telemetry.GATEWAY_STREAM, telemetry.gateway_second("g", stats, now - ago))


class TestControlLoop:
    pytestmark = looped

    @pytest.fixture(autouse=True)
    def one_variant_a_device(self, clean_redis):
        world.listening(clean_redis)
        world.node()
        choices.change("proteus", "a test")

    def test_short_queries_get_a_variant_that_is_too_slow_for_long_ones(self):
        owner = texts()
        sized_variant(owner, "quick", 80, 10, 2)
        sized_variant(owner, "good", 99, 120, 20)
        assert names(make_plan("manual")) == {"quick"}
        arrive({128: 30})
        plan = make_plan("period")
        assert names(plan) == {"good"} and plan.served == pytest.approx(plan.demand)
        arrive({128: 29, 0: 1}, seconds=1)
        assert names(make_plan("period")) == {"quick"}

    def test_a_rare_long_query_is_planned_for_until_it_has_not_come_for_long(self, clean_redis):
        owner = texts()
        sized_variant(owner, "quick", 80, 10, 2)
        sized_variant(owner, "good", 99, 120, 20)
        arrive({128: 30})
        clean_redis.hset(telemetry.SIZES_HASH, "texts 0", clock.stamp(clock.steady() - sizes.ASKED_FOR_S + 60))
        assert names(make_plan("period")) == {"quick"}
        clean_redis.hset(telemetry.SIZES_HASH, "texts 0", clock.stamp(clock.steady() - sizes.ASKED_FOR_S - 60))
        assert names(make_plan("period")) == {"good"}
        assert clean_redis.hlen(telemetry.SIZES_HASH) == 1

    def test_a_plan_serves_more_of_a_mix_than_of_long_queries_alone(self):
        sized_variant(texts(), "only", 90, 40, 4)
        served = []
        for items in ({0: 500}, {0: 250, 128: 250}):
            telemetry.live.client().delete(telemetry.GATEWAY_STREAM, telemetry.SIZES_HASH)
            arrive(items)
            served.append(make_plan("period").served)
        # Two devices; 25 long ones a second each, or 1 / (0.5 * 40 ms + 0.5 * 4 ms).
        assert served == [pytest.approx(50), pytest.approx(2 / 0.022)]

    def test_devices_receive_every_class_and_count_on_the_largest_by_default(self):
        sized_variant(texts(), "only", 90, 40, 4)
        plan = specs.msgspec.convert(make_plan("manual").wire, specs.PlanSpec)
        resident = plan.devices[0].residents[0]
        assert [(p.size, p.batch) for p in resident.profile] == [(0, b) for b in (1, 2, 4, 8)]
        assert [(p.size, p.batch, p.p50_s) for p in resident.smaller[:2]] == [(128, 1, 0.004), (128, 2, 0.008)]

    def test_classes_that_take_the_same_time_are_not_distinguished_where_queries_go(self):
        owner = texts()
        variant = world.variant(owner, "flat", 90, 5)
        assert application_spec(owner).sizes == (128, 512)
        (spec,) = contents.applications()
        assert spec.sizes == (512,)
        ProfileLatency.objects.create(
            profile=variant.profiles.get(), size=128, batch=1, p50_ms=1, p95_ms=1, mean_ms=1, samples=20
        )
        (spec,) = contents.applications()
        assert spec.sizes == (128, 512)

    def test_what_a_device_measured_is_stored_by_class(self):
        owner = texts()
        made = world.variant(owner, "new", 95, 5, state=Variant.State.PROFILING)
        made.profiles.all().delete()
        (job,) = profiling.order(made, "registration")
        dispatch.dispatch()
        job.refresh_from_db()
        done = control.ProfileDone(job=job.pk, load_s=0.1, memory_bytes=1, points=PROFILE)
        results.done(job.device.node, control.decode_from_node(control.encode(done)))
        stored = made.profiles.get().latencies.values_list("size", "batch", "p50_ms")
        assert list(stored)[:1] == [(0, 1, 40.0)] and list(stored)[4:5] == [(128, 1, 5.0)] and len(stored) == 8


def names(plan) -> set[str]:
    return {resident["variant"]["name"] for device in plan.wire["devices"] for resident in device["residents"]}
