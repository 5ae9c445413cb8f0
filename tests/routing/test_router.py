"""Routing by the plan's shares, corrected by what is known of the queues."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.batching.latency import LatencyModel
from workers.dispatch.routing.least_completion import Router

# T_process(1..4) = 0.1, 0.2, 0.3, 0.4 s: a row costs 0.1 s.
LATENCY = LatencyModel([(1, 0.1), (4, 0.4)])
AMPLE = 1e9


def router_with(max_batch=4, **shares) -> Router:
    """One application, ``app``, on devices that are up."""
    router = Router()
    router.set_routes({"app": list(shares.items())})
    for device in shares:
        router.service(device, "app", LATENCY, max_batch)
        router.up(device)
    return router


def picks(router, count, **kwargs):
    return [router.pick("app", 0.0, AMPLE, **kwargs) for _ in range(count)]


class TestShares:
    def test_they_are_spread_smoothly(self):
        assert picks(router_with(a=5, b=1, c=1), 7) == ["a", "b", "a", "a", "c", "a", "a"]

    def test_equal_shares_take_turns_in_the_routes_order(self):
        assert picks(router_with(b=0.5, a=0.5), 4) == ["b", "a", "b", "a"]

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=8), st.integers(1, 400))
    def test_no_device_is_ever_more_than_a_few_queries_from_its_share(self, shares, count):
        router = router_with(**{f"d{i}": share for i, share in enumerate(shares)})
        got = Counter(picks(router, count))
        for i, share in enumerate(shares):
            assert abs(got[f"d{i}"] - count * share / sum(shares)) < len(shares)

    def test_rows_are_shared_not_queries(self):
        router = router_with(a=1, b=1)
        rows = Counter()
        for i in range(300):
            size = 9 if i % 2 else 1
            rows[router.pick("app", 0.0, AMPLE, rows=size)] += size
        assert abs(rows["a"] - rows["b"]) <= 9

    def test_the_devices_left_share_what_another_cannot_take(self):
        router = router_with(a=2, b=1, c=1)
        router.down("a")
        assert Counter(picks(router, 100)) == {"b": 50, "c": 50}

    def test_a_device_that_comes_back_gets_its_share_and_no_burst(self):
        router = router_with(a=1, b=1)
        router.down("a")
        picks(router, 50)
        router.up("a")
        assert Counter(picks(router, 10)) == {"a": 5, "b": 5}

    def test_the_same_routes_again_do_not_start_the_round_anew(self):
        router = router_with(a=1, b=1)
        assert picks(router, 1) == ["a"]
        router.set_routes({"app": [("a", 1), ("b", 1)]})
        assert picks(router, 1) == ["b"]

    def test_new_routes_hold_from_the_next_pick(self):
        router = router_with(a=1, b=1)
        router.set_routes({"app": [("b", 1)]})
        assert picks(router, 3) == ["b", "b", "b"]

    @pytest.mark.parametrize(
        ("shares", "error"),
        [
            ([("a", -0.1)], "share of 'a' must be at least 0, not -0.1"),
            ([("a", math.nan)], "share of 'a' must be at least 0, not nan"),
            ([("a", math.inf)], "share of 'a' must be at least 0, not inf"),
            ([("a", 0.5), ("a", 0.5)], "a device stands in them twice"),
        ],
    )
    def test_wrong_routes_change_nothing(self, shares, error):
        router = router_with(a=1)
        with pytest.raises(ValueError, match=error):
            router.set_routes({"other": [("a", 1)], "app": shares})
        assert picks(router, 1) == ["a"]
        assert router.pick("other", 0.0, AMPLE) is None


class TestWhoIsEligible:
    def test_a_device_is_down_until_it_is_up(self):
        router = Router()
        router.set_routes({"app": [("a", 1)]})
        assert router.pick("app", 0.0, AMPLE) is None
        router.up("a")
        assert router.pick("app", 0.0, AMPLE) == "a"

    def test_none_where_all_are_down_draining_excluded_or_unknown(self):
        router = router_with(a=1, b=1, c=1)
        router.down("a")
        router.state("b", {}, 0.0, True, 0.0)
        assert router.pick("app", 0.0, AMPLE, exclude={"c"}) is None
        assert router.pick("app", 0.0, AMPLE, allowed={"a", "b"}) is None
        assert router.pick("unknown", 0.0, AMPLE) is None

    def test_a_device_that_drains_no_more_is_used_again(self):
        router = router_with(a=1)
        router.state("a", {}, 0.0, True, 0.0)
        router.state("a", {}, 0.0, False, 1.0)
        assert router.pick("app", 1.0, AMPLE) == "a"

    def test_a_report_does_not_bring_a_device_up(self):
        router = router_with(a=1)
        router.down("a")
        router.state("a", {}, 0.0, False, 0.0)
        assert router.pick("app", 0.0, AMPLE) is None

    def test_a_stand_by_is_used_only_where_nothing_planned_is_left(self):
        router = router_with(a=1, b=1, spare=0)
        assert set(picks(router, 10)) == {"a", "b"}
        assert router.pick("app", 0.0, AMPLE, allowed={"spare"}) == "spare"
        assert router.pick("app", 0.0, AMPLE, exclude=("a", "b")) == "spare"

    @settings(max_examples=40, deadline=None)
    @given(st.data())
    def test_whatever_happens_a_pick_is_eligible_and_outstanding_is_what_is_under_way(self, data):
        names = ["a", "b", "c"]
        router = router_with(a=1, b=2, c=3)
        up, draining, under_way = set(names), set(), []
        now = 0.0
        for _ in range(data.draw(st.integers(1, 25))):
            now += data.draw(st.sampled_from([0.0, 0.01, 0.3]))
            action = data.draw(st.sampled_from(["pick", "pick", "done", "down", "up", "state"]))
            device = data.draw(st.sampled_from(names))
            if action == "pick":
                exclude = data.draw(st.sets(st.sampled_from(names)))
                allowed = data.draw(st.none() | st.sets(st.sampled_from(names)))
                rows = data.draw(st.integers(1, 9))
                budget = data.draw(st.sampled_from([0.0, 0.3, 1.0]))
                eligible = (up - draining - exclude) & (set(names) if allowed is None else allowed)
                picked = router.pick("app", now, budget, rows, exclude, allowed)
                assert (picked in eligible) if eligible else picked is None
                if picked is not None:
                    router.sent(picked, "app", rows, now)
                    under_way.append((picked, rows))
            elif action == "done" and under_way:
                index = data.draw(st.integers(0, len(under_way) - 1))
                gone, rows = under_way.pop(index)
                router.done(gone, "app", rows, now, data.draw(st.booleans()), 0.01, 0.2, 2)
            elif action == "down":
                router.down(device)
                up.discard(device)
            elif action == "up":
                router.up(device)
                up.add(device)
                draining.discard(device)
            elif action == "state":
                drains = data.draw(st.booleans())
                router.state(device, {"app": data.draw(st.integers(0, 9))}, 0.1, drains, now)
                draining.discard(device)
                draining |= {device} if drains else set()
            for name in names:
                assert router.outstanding(name, "app") == sum(rows for d, rows in under_way if d == name)


class TestExpectedCompletion:
    """A device keeps its queries as long as it is expected to answer within their budget."""

    @staticmethod
    def router(max_batch=4) -> Router:
        """Every query's turn is on ``a``; ``instant`` takes what ``a`` does not answer in time."""
        router = Router()
        router.set_routes({"app": [("a", 1.0), ("instant", 1e-9)]})
        router.service("a", "app", LATENCY, max_batch)
        router.up("a")
        router.up("instant")
        return router

    @staticmethod
    def assert_answers_after(seconds, router, rows=1, now=0.0):
        assert router.pick("app", now, seconds + 1e-6, rows) == "a"
        assert router.pick("app", now, seconds - 1e-6, rows) == "instant"

    def test_an_idle_device_takes_the_time_of_the_query(self):
        self.assert_answers_after(0.3, self.router(), rows=3)
        self.assert_answers_after(0.3, self.router(), rows=3, now=100.0)

    def test_what_is_under_way_goes_before_in_batches(self):
        router = self.router()
        router.sent("a", "app", 2, 0.0)
        self.assert_answers_after(0.3, router)
        router.sent("a", "app", 7, 0.0)
        # Ten rows: two full batches and two rows.
        self.assert_answers_after(1.0, router)

    def test_a_full_batch_is_running_and_gets_on(self):
        router = self.router()
        router.sent("a", "app", 4, 0.0)
        self.assert_answers_after(0.2, router, now=0.3)
        # However long it takes, no more than it can be finished.
        self.assert_answers_after(0.1, router, now=9.0)

    def test_less_than_a_full_batch_may_wait_on_purpose_and_does_not_get_on(self):
        router = self.router()
        router.sent("a", "app", 2, 0.0)
        self.assert_answers_after(0.3, router, now=0.3)

    def test_answers_take_rows_away(self):
        router = self.router()
        router.sent("a", "app", 4, 0.0)
        router.sent("a", "app", 4, 0.0)
        router.done("a", "app", 4, 0.4, True, 0.0, 0.4, 4)
        self.assert_answers_after(0.5, router, now=0.4)

    def test_reports_tell_of_other_gateways_rows_and_age(self):
        router = self.router()
        router.sent("a", "app", 1, 0.0)
        router.state("a", {"app": 5}, 0.0, False, 0.0)
        self.assert_answers_after(0.6, router)
        self.assert_answers_after(0.4, router, now=0.2)
        self.assert_answers_after(0.2, router, now=9.0)

    def test_rows_of_other_gateways_and_own_ones_share_a_batch(self):
        router = self.router()
        router.service("a", "app", LatencyModel([(1, 1.0), (4, 1.0)]), 4)
        router.sent("a", "app", 1, 0.0)
        router.state("a", {"app": 2}, 0.0, False, 0.0)
        self.assert_answers_after(1.0, router)
        self.assert_answers_after(2.0, router, rows=3)

    def test_the_time_that_went_by_is_not_counted_twice(self):
        router = self.router()
        router.sent("a", "app", 4, 0.0)
        router.state("a", {"app": 8}, 0.0, False, 0.0)
        # Four rows of this gateway's, four of others', and one: of nine rows three are done after 0.3 s.
        self.assert_answers_after(0.6, router, now=0.3)
        # What ran before the report was made says nothing of what it tells.
        router.state("a", {"app": 8}, 0.0, False, 0.3)
        self.assert_answers_after(0.6, router, now=0.3)

    def test_rows_of_other_gateways_for_other_applications_get_their_turns(self):
        router = self.router()
        router.service("a", "other", LATENCY, 2)
        router.state("a", {"other": 9}, 0.0, False, 0.0)
        self.assert_answers_after(0.3, router)
        self.assert_answers_after(0.2, router, now=0.1)
        self.assert_answers_after(0.1, router, now=9.0)

    def test_the_reported_rest_of_a_batch_comes_first(self):
        router = self.router()
        router.state("a", {}, 0.7, False, 0.0)
        self.assert_answers_after(0.6, router, now=0.2)

    def test_other_applications_get_their_turns_in_between(self):
        router = self.router()
        router.service("a", "other", LATENCY, 2)
        router.sent("a", "other", 9, 0.0)
        # One turn of its own, so at most one of the other's, 0.2 s, which has just begun.
        self.assert_answers_after(0.3, router)
        self.assert_answers_after(0.5 + 0.4, router, rows=5)

    def test_a_device_that_is_slower_than_planned_is_known_to_be(self):
        router = self.router()
        for i in range(100):
            router.sent("a", "app", 1, float(i))
            router.done("a", "app", 1, i + 0.5, True, 0.0, 0.2, 1)
        assert router.pick("app", 200.0, 0.201) == "a"
        assert router.pick("app", 200.0, 0.199) == "instant"

    def test_one_batch_counts_once_however_many_queries_it_had(self):
        one, many = self.router(), self.router()
        one.sent("a", "app", 4, 0.0)
        one.done("a", "app", 4, 0.8, True, 0.0, 0.8, 4)
        for _ in range(4):
            many.sent("a", "app", 1, 0.0)
        for _ in range(4):
            many.done("a", "app", 1, 0.8, True, 0.0, 0.8, 4)
        # A batch that took twice as long as planned, with a tenth of the weight.
        for router in (one, many):
            self.assert_answers_after(0.11, router, now=1.0)

    def test_refusals_say_nothing_of_speed(self):
        router = self.router()
        router.sent("a", "app", 1, 0.0)
        router.done("a", "app", 1, 5.0, False)
        self.assert_answers_after(0.1, router, now=5.0)

    def test_a_service_that_nothing_is_known_of_takes_nothing_but_what_is_reported(self):
        router = Router()
        router.set_routes({"app": [("a", 1.0), ("instant", 1e-9)]})
        router.up("a")
        router.up("instant")
        assert router.pick("app", 0.0, 0.0) == "a"
        router.state("a", {"app": 3}, 0.5, False, 0.0)
        self.assert_answers_after(0.5, router)

    def test_a_size_that_was_measured_quicker_than_a_smaller_one_is_not_believed(self):
        router = self.router()
        router.service("a", "app", LatencyModel([(1, 0.1), (2, 0.4), (4, 0.3)]), 4)
        self.assert_answers_after(0.4, router, rows=4)

    def test_what_a_device_reported_is_forgotten_when_it_goes_down(self):
        router = self.router()
        router.state("a", {"app": 40}, 5.0, False, 0.0)
        router.down("a")
        router.up("a")
        self.assert_answers_after(0.1, router)

    def test_a_batch_of_nothing_is_refused(self):
        with pytest.raises(ValueError, match="max_batch of 'app' on 'a' must be at least 1, not 0"):
            Router().service("a", "app", LATENCY, 0)


class TestCorrection:
    def test_ties_go_to_the_first_in_the_routes(self):
        router = router_with(a=1, b=1, c=1)
        router.sent("a", "app", 8, 0.0)
        assert router.pick("app", 0.0, 0.5) == "b"
        assert router.pick("app", 0.0, 0.5, exclude={"b"}) == "c"

    def test_a_search_knows_of_what_came_since_and_of_devices_that_come_back(self):
        router = router_with(a=1e9, b=1, c=1)
        router.sent("a", "app", 40, 0.0)
        assert router.pick("app", 0.0, 0.5) == "b"
        router.sent("b", "app", 5, 0.0)
        assert router.pick("app", 0.0, 0.65) == "c"
        router.down("c")
        assert router.pick("app", 0.0, 0.65) == "b"
        router.up("c")
        assert router.pick("app", 0.0, 0.65) == "c"
        router.state("c", {"app": 40}, 0.0, False, 0.0)
        assert router.pick("app", 0.0, 0.65) == "b"
        # What was reported of c is done by then, and b, which did not answer, has two rows to go.
        assert router.pick("app", 9.0, 0.15) == "c"

    def test_queries_of_other_sizes_go_to_who_is_first_for_them(self):
        router = router_with(a=1e9, b=1, c=1)
        router.service("b", "app", LatencyModel([(1, 0.1), (3, 1.0)]), 3)
        router.service("c", "app", LatencyModel([(1, 0.3), (3, 0.4)]), 3)
        router.sent("a", "app", 40, 0.0)
        assert [router.pick("app", 0.0, 1.5, rows) for rows in (1, 2, 3)] == ["b", "c", "c"]

    def test_a_full_queue_sends_the_query_to_the_planned_device_that_answers_first(self):
        router = router_with(a=8, b=1, c=1)
        router.sent("a", "app", 8, 0.0)
        router.sent("b", "app", 5, 0.0)
        assert router.pick("app", 0.0, 0.65) == "c"

    def test_while_the_planned_device_is_in_time_shares_hold(self):
        router = router_with(a=8, b=1, c=1)
        router.sent("a", "app", 8, 0.0)
        assert router.pick("app", 0.0, 0.95) == "a"

    def test_where_nobody_is_in_time_shares_hold_too(self):
        router = router_with(a=8, b=1)
        for device in "ab":
            router.sent(device, "app", 8, 0.0)
        assert router.pick("app", 0.0, 0.5) == "a"

    def test_it_never_leaves_the_plan_or_takes_an_excluded_device(self):
        router = router_with(a=8, b=1, spare=0)
        router.sent("a", "app", 8, 0.0)
        assert router.pick("app", 0.0, 0.5, exclude={"b"}) == "a"
        assert router.pick("app", 0.0, 0.5, allowed={"a", "spare"}) == "a"

    def test_a_device_that_was_passed_over_gets_no_burst_afterwards(self):
        router = router_with(a=1, b=1)
        router.sent("a", "app", 40, 0.0)
        assert {router.pick("app", 0.0, 0.5) for _ in range(20)} == {"b"}
        router.done("a", "app", 40, 0.1, False)
        assert Counter(router.pick("app", 0.1, 0.5) for _ in range(10)) == {"a": 5, "b": 5}


class TestAccounting:
    def test_new_routes_keep_what_is_known_of_queues(self):
        router = router_with(a=1, b=1)
        router.sent("a", "app", 40, 0.0)
        router.set_routes({"app": [("a", 0.9), ("b", 0.1)]})
        assert router.outstanding("a", "app") == 40
        assert router.pick("app", 0.0, 0.5) == "b"

    def test_what_was_sent_stays_outstanding_until_it_is_done_though_the_device_went_down(self):
        router = router_with(a=1)
        router.sent("a", "app", 3, 0.0)
        router.down("a")
        router.set_routes({})
        assert router.outstanding("a", "app") == 3
        router.done("a", "app", 3, 1.0, False)
        assert router.outstanding("a", "app") == 0

    def test_an_answer_too_many_does_not_count_below_nothing(self):
        router = router_with(a=1)
        router.sent("a", "app", 1, 0.0)
        router.done("a", "app", 3, 0.1, False)
        assert router.outstanding("a", "app") == 0

    def test_identical_inputs_give_identical_picks(self):
        def play():
            router = router_with(a=3, b=2, c=1)
            chosen = []
            for i in range(200):
                now = i * 0.05
                device = router.pick("app", now, 0.45, rows=1 + i % 3)
                chosen.append(device)
                router.sent(device, "app", 1 + i % 3, now)
                if i >= 6:
                    router.done(chosen[i - 6], "app", 1 + (i - 6) % 3, now, True, 0.1, 0.25, 2)
            return chosen

        assert play() == play()
        assert len(set(play())) == 3
