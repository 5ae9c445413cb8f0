"""Which variant answers a query, where, and when."""

from __future__ import annotations

import pytest

from .driver import ANSWERED, BOTH, DISPATCHED, LARGE, REFUSED, WAITING, World, answers, menu, option

# --- accuracy ---------------------------------------------------------------------------------------------------------


def test_an_idle_device_answers_with_its_most_accurate_variant_at_once():
    world = World({"faces": 0.3}, {"cpu": BOTH})
    world.submit("faces")
    assert answers(world) == [("large", 100)]


def test_a_burst_is_answered_less_accurately_and_in_time():
    world = World({"faces": 0.3}, {"cpu": BOTH})
    for _ in range(40):
        world.submit("faces")
    found = answers(world)
    assert None not in found
    assert [variant for variant, _ in found].count("small") >= 35


@pytest.mark.parametrize(("quiet_s", "variant"), [(0.5, "small"), (30.0, "large")])
def test_a_while_after_a_burst_answers_are_accurate_again(quiet_s, variant):
    world = World({"faces": 0.3}, {"cpu": BOTH})
    for _ in range(40):
        world.submit("faces")
    world.advance(quiet_s)
    world.submit("faces")
    # Another burst may follow at once.
    assert answers(world)[-1][0] == variant


def test_answers_are_accurate_again_though_some_queries_come():
    world = World({"faces": 0.3}, {"cpu": BOTH})
    for _ in range(40):
        world.submit("faces")
    for _ in range(60):
        world.advance(0.5)
        world.submit("faces")
    assert answers(world)[-1] == ("large", 100)


def test_a_batch_scheduled_with_a_quick_variant_runs_with_an_accurate_one_if_there_is_time_when_it_starts():
    world = World({"faces": 0.3}, {"cpu": {"faces": menu(LARGE, option("small", 90, {1: 0.01}))}})
    world.busy("cpu", 0.25)
    query = world.submit("faces")
    assert query.reservation.option.variant == "small"
    world.free("cpu")
    assert query.state == DISPATCHED and query.variant == "large"


def test_accuracy_is_weighed_by_the_application():
    menus = {
        name: menu(option("large", 100, {1: 0.05}, weight=weight), option("small", 99, {1: 0.01}, weight=weight))
        for name, weight in (("dear", 50.0), ("cheap", 1.0))
    }
    worlds = []
    for name in menus:
        world = World({"dear": 1.0, "cheap": 1.0}, {"cpu": menus})
        for _ in range(60):
            world.submit(name)
            world.advance(0.04)
        worlds.append([variant for variant, _ in answers(world)].count("large"))
    assert worlds[0] > worlds[1]


# --- waiting ----------------------------------------------------------------------------------------------------------


def test_a_query_waits_for_others_only_where_a_row_gets_cheaper():
    alike = option("alike", 100, {1: 0.02, 2: 0.04, 4: 0.08})
    cheaper = option("cheaper", 100, {1: 0.02, 2: 0.021, 4: 0.022})
    for variant, state in ((alike, DISPATCHED), (cheaper, WAITING)):
        world = World({"q": 0.3}, {"cpu": {"q": menu(variant)}})
        assert world.submit("q").state == state


def test_a_batching_delay_ends_in_time_without_further_queries():
    cheaper = option("cheaper", 100, {1: 0.25, 2: 0.28, 4: 0.29})
    world = World({"q": 0.3}, {"cpu": {"q": menu(cheaper)}}, rtt_s=0.004)
    world.submit("q")
    ((_, ms),) = answers(world)
    assert ms.expected <= 300


def test_a_batch_has_queries_of_one_shape():
    cheaper = option("cheaper", 100, {1: 0.02, 2: 0.021, 4: 0.022})
    world = World({"q": 0.5}, {"cpu": {"q": menu(cheaper)}})
    world.busy("cpu", 0.1)
    queries = [world.submit("q", key=key) for key in (16, 32, 16, 32, None)]
    world.finish()
    shapes = sorted([query.key for query in batch.queries] for batch in world.batches if len(batch.queries) > 1)
    assert shapes == [[16, 16], [32, 32]]
    assert all(query.answered <= query.due for query in queries)


def test_a_query_that_expired_because_nobody_woke_the_binding_is_refused():
    cheaper = option("cheaper", 100, {1: 0.02, 2: 0.021, 4: 0.022})
    world = World({"q": 0.3}, {"cpu": {"q": menu(cheaper)}}, exact=False)
    query = world.submit("q")
    world.oversleep(0.295)
    assert query.state == REFUSED


def test_no_query_joins_a_batch_that_it_would_make_late():
    only = option("only", 100, {1: 0.1, 2: 0.15})
    world = World({"q": 1.0}, {"cpu": {"q": menu(only)}})
    world.busy("cpu", 0.1)
    hasty = world.submit("q", budget_s=0.22)
    patient = world.submit("q")
    assert patient.reservation is not hasty.reservation
    world.finish()
    assert hasty.answered <= hasty.due and patient.answered <= patient.due


def test_no_more_than_two_batches_are_under_way_to_a_device_far_away():
    only = option("only", 100, {1: 0.01})
    world = World({"q": 2.0}, {"cpu": {"q": menu(only)}}, rtt_s=0.2)
    for _ in range(6):
        world.submit("q")
    world.advance(0.1)
    assert [query.state for query in world.queries] == [DISPATCHED] * 2 + [WAITING] * 4
    world.finish()
    assert {query.state for query in world.queries} == {ANSWERED}


def test_the_next_batch_reaches_its_device_just_as_that_becomes_free():
    only = option("only", 100, {1: 0.05})
    world = World({"q": 0.5}, {"cpu": {"q": menu(only)}}, rtt_s=0.02)
    world.settle()
    first, second, third = (world.submit("q") for _ in range(3))
    assert (first.state, second.state) == (DISPATCHED, WAITING)
    # 10 ms there, 50 ms of work, 10 ms back; the next one follows without a pause.
    world.until(first.batch.end - 0.02)
    assert (second.state, third.state) == (DISPATCHED, WAITING)
    assert answers(world) == [("only", 70), ("only", 120), ("only", 170)]


# --- whose turn it is -------------------------------------------------------------------------------------------------


def test_queries_that_wait_move_with_their_application_whatever_the_order_of_devices():
    a, b = {"a": menu(option("a", 100, {1: 0.1}))}, {"b": menu(option("b", 100, {1: 0.1}))}
    for order in (("one", "two"), ("two", "one")):
        world = World({"a": 0.5, "b": 0.5}, {"one": a, "two": b})
        queries = [world.submit(name) for name in ("a", "a", "b", "b")]
        assert [query.state for query in queries] == [DISPATCHED, WAITING] * 2
        moved = {"one": b, "two": a}
        world.offer_all({name: moved[name] for name in order})
        assert None not in answers(world)
        assert [query.device for query in queries] == ["one", "two", "two", "one"]


MIXED = {"slow": menu(option("slow", 100, {1: 0.09})), "quick": menu(option("quick", 100, {1: 0.01}))}


def test_an_urgent_query_is_inserted_before_queries_that_can_wait():
    world = World({"slow": 2.0, "quick": 0.12}, {"cpu": MIXED})
    patient = [world.submit("slow") for _ in range(12)]
    hasty = world.submit("quick")
    assert answers(world)[-1] == ("quick", 100)
    assert hasty.device == "cpu"
    assert hasty.answered < patient[1].answered and all(query.state == ANSWERED for query in patient)


def test_an_urgent_query_is_inserted_behind_other_urgent_ones():
    # In front of the first one there is no time left, behind all is too late: between them it must be.
    world = World({"slow": 2.0, "quick": 0.12}, {"cpu": MIXED})
    world.settle()
    for _ in range(12):
        world.submit("slow")
    tight = world.submit("quick", budget_s=0.1005)
    hasty = world.submit("quick")
    world.finish()
    assert tight.state == hasty.state == ANSWERED
    assert tight.answered < hasty.answered <= hasty.due


def test_a_long_backlog_of_one_application_makes_no_query_of_another_late():
    world = World({"slow": 2.0, "quick": 0.12}, {"cpu": MIXED})
    for i in range(100):
        if i % 2 == 0:
            world.submit("slow")
        world.submit("quick")
        world.advance(0.1)
    world.finish()
    quick = [query for query in world.queries if query.application == "quick"]
    assert all(query.state == ANSWERED for query in quick)


def test_scheduled_batches_are_downgraded_to_make_room():
    world = World({"faces": 0.3}, {"cpu": BOTH})
    first = world.submit("faces")
    # Behind the batch that runs until 100 ms there is room for one accurate answer, and later ones need it.
    second = world.submit("faces", budget_s=0.25)
    third = world.submit("faces", budget_s=0.13)
    world.finish()
    assert (first.state, second.state, third.state) == (ANSWERED,) * 3
    assert third.answered <= 0.13


def test_an_application_is_left_the_only_device_that_can_serve_it():
    shared = {"common": menu(option("c", 100, {1: 0.28})), "rare": menu(option("r", 100, {1: 0.2}))}
    own = {"common": menu(option("c", 100, {1: 0.28}))}
    world = World({"common": 0.3, "rare": 0.3}, {"shared": shared, "own": own})
    assert world.submit("common").device == "own"
    assert world.submit("rare").state == DISPATCHED


def test_a_device_that_another_application_needs_is_used_where_nothing_else_would_be_in_time():
    shared = {"common": menu(option("c", 100, {1: 0.28})), "rare": menu(option("r", 100, {1: 0.2}))}
    world = World({"common": 0.3, "rare": 0.3}, {"shared": shared})
    assert world.submit("common").device == "shared"


def test_an_application_that_is_gone_keeps_no_device_free():
    shared = {"common": menu(option("c", 100, {1: 0.28})), "rare": menu(option("r", 100, {1: 0.2}))}
    own = {"common": menu(option("c", 99, {1: 0.28}))}
    world = World({"common": 0.3, "rare": 0.3}, {"shared": shared, "own": own})
    world.set_applications({"common": 0.3})
    assert world.submit("common").device == "shared"


RARE = menu(option("rare", 100, {1: 0.2}))


@pytest.mark.parametrize("together", [False, True])
def test_no_query_joins_a_batch_that_would_starve_another_application(together):
    common = menu(option("common", 100, {1: 0.02, 2: 0.2}))
    world = World({"common": 0.3, "rare": 0.3}, {"shared": {"common": common, "rare": RARE}})
    assert [world.submit("rare").state for _ in range(2)] == [DISPATCHED, REFUSED]
    world.advance(0.25)
    world.busy("shared", 0.05)
    asked = [("common", 1, None, None)] * 2
    queries = world.submit_together(asked) if together else [world.submit(name) for name, *_ in asked]
    queries.append(world.submit("rare"))
    world.finish()
    assert [query.state for query in queries] == [ANSWERED] * 3


def test_many_queries_that_follow_each_other_into_a_batch_starve_no_other_application():
    # Each of them delays the device by no more than 10 ms.
    common = menu(option("common", 100, {rows: 0.01 + 0.01 * rows for rows in range(1, 13)}))
    shared, own = {"common": common, "rare": RARE}, {"common": common}
    world = World({"common": 0.13, "rare": 0.3}, {"shared": shared, "own": own})
    assert [world.submit("rare").state for _ in range(2)] == [DISPATCHED, REFUSED]
    world.advance(0.21)
    world.busy("own", 0.06)
    world.busy("shared", 0.05)
    world.submit_together([("common", 1, None, None)] * 6)
    assert world.submit("rare").state == WAITING
    world.finish()
    assert [query.state for query in world.queries].count(REFUSED) == 1


def test_a_query_joins_a_batch_where_nothing_else_would_be_in_time():
    common = menu(option("common", 100, {1: 0.035, 2: 0.05}))
    world = World({"common": 0.12, "rare": 0.3}, {"shared": {"common": common, "rare": RARE}})
    assert [world.submit("rare").state for _ in range(2)] == [DISPATCHED, REFUSED]
    world.advance(0.25)
    world.busy("shared", 0.05)
    queries = [world.submit("common") for _ in range(2)]
    world.finish()
    assert [query.state for query in queries] == [ANSWERED] * 2


def test_nothing_is_kept_for_an_application_that_was_not_refused_where_queries_can_join_a_batch():
    common = menu(option("common", 100, {1: 0.02, 2: 0.2}))
    world = World({"common": 0.3, "rare": 0.3}, {"shared": {"common": common, "rare": RARE}})
    world.busy("shared", 0.05)
    first, second = world.submit("common"), world.submit("common")
    world.finish()
    assert first.batch is second.batch


def test_others_are_as_accurate_as_before_on_devices_that_the_refused_application_cannot_use():
    common = menu(option("accurate", 100, {1: 0.1}), option("quick", 90, {1: 0.01}))
    world = World({"common": 0.5, "rare": 0.3}, {"shared": {"common": common, "rare": RARE}, "own": {"common": common}})
    assert [world.submit("rare").state for _ in range(10)].count(REFUSED) == 9
    query = world.submit("common")
    assert (query.device, query.variant) == ("own", "accurate")


def test_queries_that_no_idle_device_could_answer_cost_others_no_accuracy():
    common = menu(option("accurate", 100, {1: 0.1}), option("quick", 90, {1: 0.01}))
    world = World({"common": 0.5, "rare": 0.3}, {"shared": {"common": common, "rare": RARE}})
    assert {world.submit("rare", budget_s=0.1).state for _ in range(10)} == {REFUSED}
    assert world.submit("common").variant == "accurate"


# --- too late, too large ----------------------------------------------------------------------------------------------


def test_a_query_that_cannot_be_answered_in_time_is_refused_at_once():
    world = World({"faces": 0.005}, {"cpu": BOTH})
    assert world.submit("faces").state == REFUSED


def test_an_application_without_a_device_is_refused():
    world = World({"faces": 0.3, "words": 0.3}, {"cpu": BOTH})
    assert [world.submit(name).state for name in ("words", "unknown")] == [REFUSED, REFUSED]
    assert World({}, {"cpu": BOTH}).submit("faces").state == REFUSED


def test_an_application_that_serves_late_answers_what_comes_too_late_and_still_what_comes_in_time():
    only = option("only", 100, {1: 0.1})
    world = World({"late": (0.25, True)}, {"cpu": {"late": menu(only)}})
    for _ in range(5):
        world.submit("late")
    world.advance(0.39)
    # It is scheduled in front of those that are late already.
    in_time = world.submit("late")
    world.finish()
    assert all(query.state == ANSWERED for query in world.queries)
    assert in_time.answered <= in_time.due and world.queries[4].answered > world.queries[4].due


def test_a_query_larger_than_any_batch_runs_alone_in_pieces():
    world = World({"faces": 4.0}, {"cpu": {"faces": menu(option("only", 100, {1: 0.01, 4: 0.02}))}})
    world.submit("faces")
    huge = world.submit("faces", rows=302)
    world.finish()
    assert huge.state == ANSWERED and len(huge.batch.queries) == 1
    assert huge.batch.option.seconds(302) == pytest.approx(75 * 0.02 + 0.02)


# --- rules ------------------------------------------------------------------------------------------------------------


def test_a_withdrawn_query_leaves_its_place_to_the_next():
    only = option("only", 100, {1: 0.1, 2: 0.11})
    world = World({"q": 0.35}, {"cpu": {"q": menu(only)}})
    world.submit("q"), world.submit("q")
    third, fourth = world.submit("q"), world.submit("q")
    assert third.reservation is fourth.reservation and third.state == WAITING
    assert world.withdraw(third) and not world.withdraw(third)
    fifth = world.submit("q")
    assert fifth.reservation is fourth.reservation
    world.finish()
    assert third.batch is None and fourth.state == fifth.state == ANSWERED
