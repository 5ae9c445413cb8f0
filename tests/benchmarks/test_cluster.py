"""The cluster's figures, from what clients and gateways said."""

from __future__ import annotations

import pytest

from benchmarks.cluster import simulated
from benchmarks.cluster.simulated import Served, chosen
from benchmarks.cluster.site import Seen, contradictions
from benchmarks.faults.checker import check, merged, queries_of
from benchmarks.faults.history import Ended, Event, Follows, Planned, Sent
from workers.dispatch.latency import LatencyModel

pytestmark = pytest.mark.wide


def attempt(id: str, at: float, took_s: float = 0.1, end: str = "ok", **given) -> list[Event]:
    application = id.partition("-")[0]
    return [Sent(id, application, "http", at), Ended(id, at + took_s, end, answer_id=id, **given)]


def test_a_query_is_all_its_attempts():
    events = [
        *attempt("a-0@0", 1.0),
        *attempt("a-1@1", 2.0, end="fail", note="refused"),
        *attempt("a-1@0", 2.1, 0.3),
        *attempt("a-2@0", 3.0, 1.0, end="fail", note="refused"),
        *attempt("a-2@1", 4.0, 1.0, end="unknown", note="connection lost"),
    ]
    found = merged(queries_of(events))
    assert [one.end.end for one in found] == ["ok", "ok", "unknown"]
    assert [one.took_s for one in found] == pytest.approx([0.1, 0.4, 2.0])


def test_a_device_of_two_cores_shows_where_both_say_so_twice():
    one = [Seen(at, "first", frozenset({"n1", "n2"})) for at in (1.0, 1.2, 1.4)]
    for other, wanted in (
        ([Seen(1.05, "second", frozenset({"n2"})), Seen(1.25, "second", frozenset({"n2"}))], {"n2"}),
        ([Seen(1.05, "second", frozenset({"n2"})), Seen(1.25, "second", frozenset({"n3"}))], set()),
        ([Seen(1.05, "first", frozenset({"n2"})), Seen(1.25, "first", frozenset({"n2"}))], set()),
    ):
        assert contradictions(one, other) == wanted


def test_a_plan_is_in_force_until_all_gateways_follow_another_one():
    plans = [
        Planned(version, at, str(version), ((("a", "v", device)),), {"a/v": 90.0})
        for version, at, device in ((1, 0.0, "n1"), (2, 5.0, "n2"))
    ]
    follows = [Follows("one", 2, 6.0), Follows("two", 1, 6.0), Follows("two", 2, 8.0)]
    answer = {"variant": "v", "device": "n1", "accuracy": 90.0}
    late, too_late = attempt("a-0@0", 7.0, **answer), attempt("a-1@0", 9.0, **answer)
    assert not check([*plans, *follows, *late], gateways=("one", "two"))
    assert [one.rule for one in check([*plans, *follows, *too_late], gateways=("one", "two"))] == ["allowed variant"]


def test_the_cluster_is_simulated_with_its_devices_and_run_times():
    wanted = chosen(200.0)
    known = {
        kind: {
            (one.name, variant.name): LatencyModel([(1, slow * (rank + 1)), (4, slow * 2.5 * (rank + 1))])
            for one in wanted
            for rank, variant in enumerate(one.variants)
        }
        for kind, slow in (("quick", 0.005), ("slow", 0.02))
    }
    served = Served((("n1", "quick"), ("n2", "slow")), known)
    events: list[Event] = []
    for number in range(600):
        one = wanted[number % len(wanted)]
        best = one.variants[-1]
        about = {"variant": best.name, "device": "n1", "accuracy": best.accuracy, "rows": 1, "inside_ms": 15.0}
        events += attempt(f"{one.name}-{number}@0", number / 10, 0.02, **about)
    holds, text = simulated.compare(merged(queries_of(events)), wanted, served, 600 * 0.015, 10.0)
    assert holds and "violations 0.00% and 0.00%, accuracy 100.00 and 100.00" in text
    assert "run time over profile 1.00, way 5.0 ms" in text
