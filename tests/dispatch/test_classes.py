"""Queries that permit some variants only."""

from __future__ import annotations

from workers.dispatch.binding import QueryClass

from .driver import REFUSED, World, menu, option

BEST = option("best", 100, {1: 0.1, 8: 0.2})
QUICK = option("quick", 80, {1: 0.01, 8: 0.02})
#: no use but to who names it: as slow as the best, and less accurate
OLD = option("old", 90, {1: 0.1, 8: 0.2})


def only(*variants: str) -> QueryClass:
    return QueryClass("q", 0, frozenset(variants))


def world(slo_s: float = 1.0, devices: int = 1) -> World:
    return World({"q": slo_s}, {f"d{i}": {"q": menu(BEST, QUICK, OLD)} for i in range(devices)})


def test_a_named_variant_answers_though_others_are_worth_more():
    made = world()
    queries = [made.submit(only(name)) for name in ("quick", "old", "best")]
    made.finish()
    assert [query.variant for query in queries] == ["quick", "old", "best"]


def test_a_variant_that_no_device_has_is_refused_at_once():
    made = world()
    assert made.submit(only("gone")).state == REFUSED
    assert made.submit("q").state != REFUSED


def test_restricted_and_unrestricted_queries_share_a_batch():
    made = world()
    made.busy("d0", 0.2)
    queries = [made.submit("q"), made.submit(only("best")), made.submit(only("best", "old")), made.submit("q")]
    made.finish()
    assert len({id(query.batch) for query in queries}) == 1
    assert {query.variant for query in queries} == {"best"}


def test_a_shared_batch_is_not_hurried_onto_a_variant_that_one_of_its_queries_forbids():
    made = world(slo_s=0.4)
    made.busy("d0", 0.15)
    whole, restricted = made.submit("q"), made.submit(only("best"))
    # Behind them nothing more fits, unless they ran on the quick variant.
    later = [made.submit("q", rows=8) for _ in range(3)]
    made.finish()
    assert restricted.variant == "best"
    assert whole.variant in ("best", "quick")
    assert {query.state for query in later} <= {"answered", REFUSED}


def test_classes_that_exclude_each_other_do_not_share():
    made = world()
    made.busy("d0", 0.2)
    one, other = made.submit(only("best")), made.submit(only("quick"))
    made.finish()
    assert one.batch is not other.batch


def test_all_classes_of_an_application_are_one_demand():
    made = world()
    for name in ("best", "old"):
        made.submit(only(name))
    made.submit("q")
    demands = {id(known.demand) for known in made.binding._groups.classes.values()}
    assert len(demands) == 1
    assert next(iter(made.binding._groups.classes.values())).demand.pending == 3


def test_a_class_is_forgotten_once_the_plan_changes_and_nothing_of_it_waits():
    made = world()
    made.submit(only("best"))
    made.set_applications(made.applications)
    assert only("best") in made.binding._groups.classes, "one is under way"
    made.finish()
    made.set_applications(made.applications)
    assert list(made.binding._groups.classes) == [QueryClass("q")]


def test_a_refused_query_probes_an_idle_device_that_was_slow():
    made = World({"q": 0.3}, {"d0": {"q": menu(BEST)}}, slowness=lambda device: 2.9)
    while made.submit("q").state != REFUSED:
        made.finish()
    query = made.submit("q")
    assert query.state == REFUSED
    decisions = made.binding.probe(query, made.now)
    assert [batch.queries for batch in decisions.dispatches] == [[query]]
    assert not made.binding.probe(made.submit("q"), made.now).dispatches, "the device is busy now"
