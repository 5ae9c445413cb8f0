"""Time slices of queues that share a device: least slack first.

No query is late while the revisit bound holds.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.simulation.stacks import POLICIES
from tests.published.driver import Query, Served, simulate
from tests.published.strategies import ms
from workers.dispatch.latency import LatencyModel
from workers.dispatch.published.policy import Candidate, Decision
from workers.dispatch.published.time_slices import TIMER_SLACK_S, Arbiter, Contender, blocking_s

pytestmark = pytest.mark.wide

CANDIDATE = Candidate(1, 90.0, LatencyModel([(1, 0.1), (2, 0.2), (3, 0.3)]), 3)


def ready(queue, deadline, rows=1, since=0.0):
    return Contender(queue, since, Decision([Query(1, since, deadline, rows)], CANDIDATE))


def waits(queue, until, since=0.0):
    return Contender(queue, since, Decision(wait_until=until))


class TestArbiter:
    def test_least_slack_goes_first(self):
        # The later deadline is the more urgent one where the batch takes longer.
        assert Arbiter().choose([ready("a", 1.0, 1), ready("b", 1.1, 3)], 0.0) == "b"

    def test_ties_go_by_name(self):
        assert Arbiter().choose([ready("b", 1.0), ready("a", 1.0)], 0.0) == "a"

    def test_a_batch_that_can_meet_no_deadline_goes_last(self):
        assert Arbiter().choose([ready("a", 0.05), ready("b", 9.0)], 0.0) == "b"

    def test_no_queue_runs_where_all_rather_wait(self):
        assert Arbiter().choose([waits("a", 2.0), waits("b", 1.0)], 0.0) is None
        assert Arbiter().choose([waits("a", 2.0), ready("b", 1.0)], 0.0) == "b"

    def test_a_queue_that_had_a_slice_meanwhile_lets_the_one_that_waited_go_first(self):
        arbiter = Arbiter()
        assert arbiter.choose([ready("busy", 0.5), ready("calm", 9.0)], 0.0) == "busy"
        arbiter.ended("busy", 0.1)
        assert arbiter.choose([ready("busy", 0.5), ready("calm", 9.0)], 0.1) == "calm"
        arbiter.ended("calm", 0.2)
        assert arbiter.choose([ready("busy", 0.5), ready("calm", 9.0)], 0.2) == "busy"

    def test_a_queue_that_waits_on_purpose_delays_no_other(self):
        arbiter = Arbiter()
        for now in (0.0, 0.1, 0.2):
            assert arbiter.choose([ready("busy", 0.5), waits("calm", 5.0)], now) == "busy"
            arbiter.ended("busy", now + 0.1)

    def test_a_tighter_query_at_the_front_does_not_make_a_queue_wait_anew(self):
        arbiter = Arbiter()
        arbiter.choose([ready("busy", 0.5), waits("calm", 5.0, since=0.0)], 0.05)
        arbiter.ended("busy", 0.1)
        assert arbiter.choose([ready("busy", 0.5), ready("calm", 9.0, since=0.1)], 0.1) == "calm"

    def test_a_queue_that_left_and_came_back_starts_anew(self):
        arbiter = Arbiter()
        arbiter.choose([ready("a", 0.5), ready("b", 9.0)], 0.0)
        arbiter.ended("a", 0.1)
        arbiter.forget("a")
        assert arbiter.choose([ready("a", 0.5, since=0.1), ready("b", 9.0)], 0.1) == "a"


class TestLatestStart:
    QUEUE = [Query(1, 0.0, 0.05), Query(2, 0.1, 0.5), Query(3, 0.2, 0.9)]

    def test_it_goes_by_the_earliest_deadline_that_the_batch_can_meet(self):
        first, _, third = self.QUEUE
        assert Contender("a", 0.0, Decision([first, third], CANDIDATE)).latest_start(0.3) == 0.9 - 0.2

    def test_there_is_none_where_the_batch_can_meet_no_deadline(self):
        assert Contender("a", 0.0, Decision(self.QUEUE[:1], CANDIDATE)).latest_start(0.3) == math.inf


class TestBlocking:
    QUEUES = {
        name: [Candidate(1, 90.0, LatencyModel([(1, shortest_s), (2, longest_s)]), 2)]
        for name, shortest_s, longest_s in (("a", 0.02, 0.1), ("b", 0.2, 0.2), ("c", 0.01, 0.05))
    }

    def test_it_is_one_slice_of_each_other_and_the_growth_of_the_own_batch(self):
        expected = {"a": 0.25 + 0.08, "b": 0.15, "c": 0.3 + 0.04}
        assert blocking_s(self.QUEUES, slack_s=0.0) == pytest.approx(expected, abs=1e-5)

    def test_a_queue_alone_waits_only_for_late_timers(self):
        alone = {"a": self.QUEUES["a"]}
        assert blocking_s(alone, slack_s=0.0) == {"a": 0.0}
        assert blocking_s(alone) == {"a": TIMER_SLACK_S}

    def test_a_slice_is_as_long_as_the_slowest_candidate(self):
        quick = Candidate(1, 80.0, LatencyModel([(1, 0.01), (8, 0.05)]), 8)
        slow = Candidate(2, 90.0, LatencyModel([(1, 0.04), (2, 0.07), (4, 0.06)]), 4)
        blocking = blocking_s({"a": [quick, slow], "b": self.QUEUES["b"]}, slack_s=0.0)
        assert blocking == pytest.approx({"a": 0.2 + 0.06, "b": 0.07}, abs=1e-5)


@st.composite
def shared_devices(draw):
    """Draw 2 to 4 queues on a device, and their queries.

    Each but the first keeps to the bound: SLO >= D + l, at most ``max_batch`` rows in any D. The first may get
    anything, in any bursts.
    """
    candidates = []
    for variant in range(draw(st.integers(2, 4))):
        seconds = sorted(draw(st.lists(ms, min_size=3, max_size=3)))
        latency = LatencyModel(list(zip((1, 2, 4), seconds, strict=True)))
        candidates.append(Candidate(variant, 90.0, latency, draw(st.integers(1, 4))))
    longest = [candidate.latency.seconds(candidate.max_batch) for candidate in candidates]
    gap = sum(longest)
    policies = st.sampled_from(["proteus", "nexus"])
    queues = [
        Served(POLICIES[draw(policies)](), candidate, draw(st.sampled_from(["shed", "serve"])), f"queue{i}")
        for i, candidate in enumerate(candidates)
    ]
    queries, last = [], 0.0
    for i, candidate in list(enumerate(candidates))[1:]:
        # A little over the bound: the last microsecond goes to rounding.
        slo = gap + longest[i] + 1e-5 + draw(st.sampled_from([0.0, 0.0, 0.5, 2.0])) * gap
        arrived: list[float] = []
        for _ in range(draw(st.integers(1, 12))):
            now = (arrived[-1] if arrived else 0.0) + draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])) * gap
            if len(arrived) >= candidate.max_batch:
                now = max(now, arrived[-candidate.max_batch] + gap + 1e-5)
            arrived.append(now)
        queries += [Query(100 * i + k, now, now + slo, 1, f"queue{i}") for k, now in enumerate(arrived)]
        last = max(last, arrived[-1])
    now = 0.0
    slo = draw(st.floats(0.1, 3.0)) * gap
    for k in range(draw(st.integers(0, 60))):
        now += draw(st.sampled_from([0.0, 0.0, 0.05, 0.5])) * longest[0]
        queries.append(Query(1000 + k, now, now + slo, 1, "queue0"))
    return queues, queries


@given(shared_devices())
def test_no_queue_that_keeps_to_the_bound_is_late_whatever_the_others_get(device):
    queues, queries = device
    timeline = simulate(queues, queries)
    assert sorted(timeline.answered) == sorted(query.id for query in queries)
    for query in queries:
        if query.queue != "queue0":
            assert timeline.ends.get(query.id, math.inf) <= query.deadline


def test_room_is_left_for_the_rows_that_come_while_the_others_hold_the_device():
    """Room is left for the rows that come while the others hold the device.

    Ready only one slice of the other earlier (at 0.08), "a" would still wait when the other starts at 0.075, find no
    time for all three rows at 0.475, and leave the third behind for another slice of the other: late.
    """
    a = Candidate(1, 90.0, LatencyModel([(1, 0.05), (2, 0.05), (3, 0.065)]), 3)
    other = Candidate(2, 90.0, LatencyModel([(1, 0.4)]), 1)
    slo = 0.465 + 0.065
    queries = [Query(i, at, at + slo, 1, "a") for i, at in enumerate((0.0, 0.155, 0.31))]
    queries += [Query(i, at, at + 9.0, 1, "other") for i, at in ((10, 0.075), (11, 0.35))]
    queues = [Served(POLICIES["proteus"](), a, name="a"), Served(POLICIES["proteus"](), other, name="other")]
    timeline = simulate(queues, queries)
    assert not timeline.dropped
    assert all(timeline.ends[query.id] <= query.deadline for query in queries)


@given(shared_devices(), st.data())
def test_between_two_slices_of_a_queue_that_wants_to_run_each_other_has_at_most_one(device, data):
    queues, queries = device
    for served in queues:
        served.policy = POLICIES[data.draw(st.sampled_from(list(POLICIES)))]()
    timeline = simulate(queues, queries)
    wanted: dict[str, float] = {}
    slices = {batch.start: batch for batch in timeline.batches}
    had: dict[str, list[str]] = {}
    for now, name, decision in timeline.decisions:
        if decision.run:
            wanted.setdefault(name, now)
            had.setdefault(name, [])
        else:
            wanted.pop(name, None)
            had.pop(name, None)
        # The last decision of a moment is followed by the slice that was chosen then.
        batch = slices.get(now)
        if batch is not None and (now, name) == _last_at(timeline, now):
            for other in had:
                if other != batch.queue:
                    had[other].append(batch.queue)
                    assert len(had[other]) == len(set(had[other]))
            had.pop(batch.queue, None)


def _last_at(timeline, moment):
    return [(now, name) for now, name, _ in timeline.decisions if now == moment][-1]
