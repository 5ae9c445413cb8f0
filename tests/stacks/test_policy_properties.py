"""Rules that every batch policy keeps with several variants or queues.

A policy may choose between variants, and queues may share a device.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.simulation.stacks import POLICIES
from tests.examples import examples
from tests.published.driver import Decided, Served, simulate
from tests.published.strategies import arrivals, candidates
from workers.dispatch.published.policy import Candidate, QueueView

pytestmark = pytest.mark.wide

every_policy = pytest.mark.parametrize("name", list(POLICIES))


@st.composite
def choices(draw) -> list[Candidate]:
    """Up to four resident variants of one application; the first is the planned one."""
    found = [draw(candidates()) for _ in range(draw(st.integers(2, 4)))]
    return [Candidate(i, 100.0 - 7 * i, c.latency, c.max_batch, planned=i == 0) for i, c in enumerate(found)]


def view(queries, offered: list[Candidate], when: float, late: str) -> QueueView:
    now = queries[0].arrived + when
    waiting = sorted((q for q in queries if q.arrived <= now), key=lambda q: (q.deadline, q.id))
    return QueueView(now, waiting, offered, late == "serve")


@every_policy
@given(offered=choices(), queries=arrivals(most=15), when=st.floats(0, 0.5), late=st.sampled_from(["shed", "serve"]))
def test_a_decision_between_variants_keeps_the_rules(name, offered, queries, when, late):
    given_view = view(queries, offered, when, late)
    decision = Decided.of(POLICIES[name]().decide(given_view))
    waiting = {q.id: q for q in given_view.queue}
    run, drop = set(decision.run), set(decision.drop)
    assert len(run) == len(decision.run) and len(drop) == len(decision.drop)
    assert run <= waiting.keys() and drop <= waiting.keys() and not run & drop
    assert not drop or late == "shed"
    if not run:
        assert decision.wait_until > given_view.now
        return
    chosen = next(c for c in offered if c.variant == decision.variant)
    assert sum(waiting[i].rows for i in run) <= chosen.max_batch or len(run) == 1
    if late == "shed":
        for i in run:
            alone = given_view.now + chosen.latency.seconds(waiting[i].rows)
            assert alone <= waiting[i].deadline, "a query was run that is bound to be late"
    again = Decided.of(POLICIES[name]().decide(view(queries, offered, when, late)))
    assert again == decision


@every_policy
@given(offered=choices(), queries=arrivals(most=15), when=st.floats(0, 0.5))
def test_what_is_dropped_could_not_have_been_in_time_on_the_planned_variant_alone(name, offered, queries, when):
    if name in ("nexus", "ramsis"):
        return  # they give viable queries up for the batch's sake, by design
    given_view = view(queries, offered[:1], when, "shed")
    planned, waiting = offered[0], {q.id: q for q in given_view.queue}
    for i in Decided.of(POLICIES[name]().decide(given_view)).drop:
        assert given_view.now + planned.latency.seconds(waiting[i].rows) > waiting[i].deadline


@pytest.mark.parametrize("second", list(POLICIES))
@every_policy
@examples(5)
@given(one=candidates(), other=candidates(), queries=arrivals(most=25), data=st.data())
def test_queues_that_share_a_device_answer_every_query_once(name, second, one, other, queries, data):
    sides = data.draw(st.lists(st.sampled_from(["a", "b"]), min_size=len(queries), max_size=len(queries)))
    split = [replace(query, queue=side) for query, side in zip(queries, sides, strict=True)]

    def run():
        queues = [Served(POLICIES[name](), one, name="a"), Served(POLICIES[second](), other, name="b")]
        return simulate(queues, split)

    timeline = run()
    assert sorted(timeline.answered) == [query.id for query in queries]
    spans = sorted((batch.start, batch.end) for batch in timeline.batches)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans)), "one batch at a time"
    assert run().decisions == timeline.decisions
