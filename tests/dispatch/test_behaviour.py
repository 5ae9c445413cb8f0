"""What a client of the appliance would notice of the binding: which variant answers, where, and when."""

from __future__ import annotations

import pytest

from workers.dispatch.feedback import BACKOFF_FACTOR, BACKOFF_S, LARGEST_BACKOFF_S
from workers.dispatch.latency_correction import RatioEstimator

from .driver import ANSWERED, DISPATCHED, REFUSED, WAITING, World, menu, option

LARGE = option("large", 100, {1: 0.1, 2: 0.2, 4: 0.4}, rows=2)
SMALL = option("small", 90, {1: 0.01, 2: 0.014, 4: 0.02, 8: 0.03})
BOTH = {"faces": menu(LARGE, SMALL)}


def answers(world):
    """(variant, ms from arrival to answer), by query; None where there is none."""
    world.finish()
    return [
        (query.variant, pytest.approx((query.answered - query.arrived) * 1000, abs=1e-3))
        if query.state == ANSWERED
        else None
        for query in world.queries
    ]


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


def test_after_a_burst_answers_are_accurate_again():
    world = World({"faces": 0.3}, {"cpu": BOTH})
    for _ in range(40):
        world.submit("faces")
    world.advance(1.0)
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
        name: menu(
            option("large", 100, {1: 0.05}, weight=weight),
            option("small", 99, {1: 0.01}, weight=weight),
        )
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


def test_a_query_waits_for_company_only_where_a_row_gets_cheaper():
    alike = option("alike", 100, {1: 0.02, 2: 0.04, 4: 0.08})
    cheaper = option("cheaper", 100, {1: 0.02, 2: 0.021, 4: 0.022})
    for variant, state in ((alike, DISPATCHED), (cheaper, WAITING)):
        world = World({"q": 0.3}, {"cpu": {"q": menu(variant)}})
        assert world.submit("q").state == state


def test_what_waits_for_company_starts_in_time_without_any():
    cheaper = option("cheaper", 100, {1: 0.25, 2: 0.28, 4: 0.29})
    world = World({"q": 0.3}, {"cpu": {"q": menu(cheaper)}}, rtt_s=0.004)
    world.submit("q")
    ((_, ms),) = answers(world)
    assert ms.expected <= 300


def test_a_batch_that_is_full_waits_for_nobody():
    cheaper = option("cheaper", 100, {1: 0.02, 2: 0.021})
    world = World({"q": 0.3}, {"cpu": {"q": menu(cheaper)}})
    queries = [world.submit("q"), world.submit("q")]
    assert [query.state for query in queries] == [DISPATCHED, DISPATCHED]
    assert queries[0].batch is queries[1].batch


def test_only_queries_of_one_shape_stand_in_a_batch():
    cheaper = option("cheaper", 100, {1: 0.02, 2: 0.021, 4: 0.022})
    world = World({"q": 0.5}, {"cpu": {"q": menu(cheaper)}})
    world.busy("cpu", 0.1)
    queries = [world.submit("q", key=key) for key in (16, 32, 16, 32, None)]
    world.finish()
    shapes = sorted([query.key for query in batch.queries] for batch in world.batches if len(batch.queries) > 1)
    assert shapes == [[16, 16], [32, 32]]
    assert all(query.answered <= query.due for query in queries)


def test_what_waited_too_long_because_nobody_woke_the_binding_is_refused_and_not_run_late():
    cheaper = option("cheaper", 100, {1: 0.02, 2: 0.021, 4: 0.022})
    world = World({"q": 0.3}, {"cpu": {"q": menu(cheaper)}}, exact=False)
    query = world.submit("q")
    world.oversleep(0.295)
    assert query.state == REFUSED


def test_nobody_joins_a_batch_that_would_become_late_by_that():
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


def test_an_idle_device_takes_over_what_waits_behind_others():
    only = option("only", 100, {1: 0.1})
    world = World({"q": 0.5}, {"cpu": {"q": menu(only)}, "gpu": {"q": menu(only)}})
    world.settle()
    world.busy("gpu", 0.19)
    for _ in range(4):
        world.submit("q")
    # The gpu is given free early, has the third query done at 110 ms, and then takes over the fourth from the cpu.
    world.advance(0.01)
    world.free("gpu")
    assert [ms for _, ms in answers(world)] == [100, 200, 110, 210]
    assert [query.device for query in world.queries] == ["cpu", "cpu", "gpu", "gpu"]


def test_a_device_that_comes_up_takes_over_what_waits_for_another():
    only = option("only", 100, {1: 0.1})
    world = World({"q": 0.5}, {"cpu": {"q": menu(only)}, "gpu": {"q": menu(only)}})
    world.set_up("gpu", False)
    queries = [world.submit("q") for _ in range(3)]
    world.set_up("gpu", True)
    assert [(query.state, query.device) for query in queries] == [
        (DISPATCHED, "cpu"),
        (WAITING, None),
        (DISPATCHED, "gpu"),
    ]


MIXED = {
    "slow": menu(option("slow", 100, {1: 0.09})),
    "quick": menu(option("quick", 100, {1: 0.01})),
}


def test_a_query_in_a_hurry_overtakes_what_can_wait():
    world = World({"slow": 2.0, "quick": 0.12}, {"cpu": MIXED})
    patient = [world.submit("slow") for _ in range(12)]
    hasty = world.submit("quick")
    assert answers(world)[-1] == ("quick", 100)
    assert hasty.device == "cpu"
    assert hasty.answered < patient[1].answered and all(query.state == ANSWERED for query in patient)


def test_a_query_in_a_hurry_finds_its_place_behind_others_in_a_hurry():
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


def test_room_is_made_by_hurrying_what_is_scheduled():
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


# --- too late, too large ----------------------------------------------------------------------------------------------


def test_a_query_that_cannot_be_answered_in_time_is_refused_at_once():
    world = World({"faces": 0.005}, {"cpu": BOTH})
    assert world.submit("faces").state == REFUSED


def test_an_application_without_a_device_is_refused():
    world = World({"faces": 0.3, "words": 0.3}, {"cpu": BOTH})
    assert [world.submit(name).state for name in ("words", "unknown")] == [REFUSED, REFUSED]


def test_without_any_application_everything_is_refused():
    world = World({}, {"cpu": BOTH})
    assert world.submit("faces").state == REFUSED


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


# --- mishaps ----------------------------------------------------------------------------------------------------------


def test_what_a_lost_device_was_dispatched_runs_elsewhere():
    world = World({"faces": 0.3}, {"cpu": BOTH, "gpu": BOTH})
    query = world.submit("faces")
    world.lose(query.device)
    assert query.state == DISPATCHED
    world.finish()
    assert query.state == ANSWERED


def test_what_is_scheduled_on_a_device_that_goes_away_runs_elsewhere():
    only = option("only", 100, {1: 0.1})
    world = World({"q": 0.35}, {"cpu": {"q": menu(only)}, "gpu": {"q": menu(only)}})
    queries = [world.submit("q") for _ in range(4)]
    assert {query.reservation.device.name for query in queries[2:]} == {"cpu", "gpu"}
    world.away("gpu", 2.0)
    world.finish()
    assert [query.device for query in queries].count("cpu") == 3


def test_a_device_that_hangs_keeps_nothing_that_another_can_answer():
    only = option("only", 100, {1: 0.05})
    menus = {"q": menu(only)}
    world = World({"q": 0.5}, {"stuck": menus, "sound": menus}, exact=False)
    world.submit("q")
    stuck = world.queries[0].batch
    # Its answer never comes.
    world.hang(stuck)
    for _ in range(40):
        world.advance(0.055)
        world.submit("q")
    world.advance(1.0)
    assert [query.state for query in world.queries].count(REFUSED) == 0
    assert [query.state for query in world.queries[1:]].count(ANSWERED) >= 39


def test_what_waits_behind_a_batch_that_hangs_is_answered_elsewhere_in_time():
    only = option("only", 100, {1: 0.05})
    menus = {"q": menu(only)}
    world = World({"q": 0.5}, {"stuck": menus, "sound": menus}, exact=False)
    world.busy("sound", 0.2)
    first, second = world.submit("q"), world.submit("q")
    assert first.device == second.reservation.device.name == "stuck"
    world.hang(first.batch)
    world.advance(0.5)
    assert second.device == "sound" and second.answered <= second.due


def test_a_device_that_hangs_does_not_hide_the_pressure_on_others():
    only = option("only", 100, {1: 0.05})
    menus = {"q": menu(only)}
    world = World({"q": 0.5}, {"stuck": menus, "sound": menus}, exact=False)
    world.submit("q")
    world.hang(world.queries[0].batch)
    world.advance(5.0)
    for _ in range(6):
        world.submit("q")
    assert world.binding.pressure("q", world.now) > 0.2


def test_a_busy_device_is_idle_again_when_others_work_there_ends():
    world = World({"faces": 0.3}, {"cpu": BOTH})
    world.busy("cpu", 0.1)
    assert world.binding.pressure("faces", world.now) > 0.3
    world.advance(5.0)
    assert world.binding.pressure("faces", world.now) == 0.0


@pytest.mark.parametrize("until", [float("inf"), float("-inf"), float("nan")])
def test_a_device_cannot_be_busy_until_a_time_that_is_none(until):
    world = World({"faces": 0.3}, {"cpu": BOTH})
    with pytest.raises(ValueError, match="until"):
        world.binding.device_changed("cpu", 0.0, busy_until=until)


def test_a_declined_query_is_scheduled_again_while_its_time_lasts():
    only = option("only", 100, {1: 0.2})
    world = World({"q": 0.3}, {"cpu": {"q": menu(only)}})
    query = world.submit("q")
    world.advance(0.05)
    world.decline(query.batch)
    # Whoever just gave it back is not asked again at once.
    assert query.state == WAITING
    world.advance(BACKOFF_S)
    assert query.state == DISPATCHED
    world.advance(0.06)
    world.decline(query.batch)
    assert query.state == REFUSED


def test_a_device_that_gives_queries_back_is_left_alone_for_longer_and_longer():
    worse = menu(option("worse", 90, {1: 0.1}))
    world = World({"faces": 0.5}, {"good": {"faces": menu(LARGE)}, "other": {"faces": worse}})
    query, left_alone = world.submit("faces"), BACKOFF_S
    while query.batch.device.name == "good":
        world.decline(query.batch)
        # What is given back in the meantime is one and the same incident.
        world.advance(left_alone * 0.9)
        if query.state == WAITING:
            world.advance(left_alone * 0.2)
            left_alone *= BACKOFF_FACTOR
    assert left_alone > BACKOFF_S
    assert query.state in (DISPATCHED, ANSWERED)
    world.advance(LARGEST_BACKOFF_S)
    assert world.submit("faces").batch.device.name == "good"
    world.finish()
    later = world.submit("faces")
    world.decline(later.batch)
    world.advance(BACKOFF_S)
    assert later.batch.device.name == "good", "an answer makes up for it"


def test_what_a_new_plan_no_longer_offers_is_scheduled_on_what_it_does():
    world = World({"faces": 0.5}, {"cpu": BOTH})
    queries = [world.submit("faces") for _ in range(3)]
    world.offer("cpu", {"faces": menu(SMALL)})
    world.finish()
    assert [query.variant for query in queries[1:]] == ["small", "small"]


# --- how well devices keep their times --------------------------------------------------------------------------------


def test_a_slow_device_is_counted_on_for_what_it_can_do():
    only = option("only", 100, {1: 0.1})
    menus = {"q": menu(only)}
    pace = {"slow": 2.4, "sound": 1.0}
    world = World({"q": 0.3}, {"slow": menus, "sound": menus}, slowness=pace.get)
    for _ in range(60):
        world.submit("q")
        world.submit("q")
        world.advance(0.5)
    late = [query for query in world.queries[60:] if query.state == ANSWERED and query.answered > query.due]
    assert not late
    assert {query.device for query in world.queries[60:]} == {"slow", "sound"}


def test_no_device_is_idle_while_a_query_is_refused_because_another_idle_one_is_slow():
    only = option("only", 100, {1: 0.1})
    menus = {"q": menu(only)}
    pace = {"slow": 5.0, "sound": 1.0}
    world = World({"q": 0.3}, {"slow": menus, "sound": menus}, slowness=pace.get)
    for _ in range(80):
        world.submit("q")
        world.advance(0.6)
    # But for a few, by which the slow one is tried again.
    assert [query.device for query in world.queries[20:]].count("slow") <= 2
    assert all(query.state == ANSWERED for query in world.queries)


def test_a_device_that_was_slow_is_tried_again():
    only = option("only", 100, {1: 0.1})
    pace = {"cpu": 5.0}
    world = World({"q": 0.3}, {"cpu": {"q": menu(only)}}, slowness=lambda device: pace[device])
    for _ in range(80):
        world.submit("q")
        world.advance(0.6)
    assert any(query.state == REFUSED for query in world.queries[-20:])
    pace["cpu"] = 1.0
    for _ in range(400):
        world.submit("q")
        world.advance(0.6)
    assert all(query.state == ANSWERED and query.answered <= query.due for query in world.queries[-50:])


def test_a_factor_follows_what_is_observed_and_forgets_single_stalls():
    noise = RatioEstimator()
    for _ in range(300):
        noise.observe(1.0)
    assert noise.factor == 1.0
    noise.observe(1000.0)
    assert noise.factor < 1.6
    for _ in range(300):
        noise.observe(5.0)
    assert 4.99 < noise.factor < 5.5


def test_a_device_whose_trouble_is_over_is_trusted_again_within_few_batches():
    noise = RatioEstimator()
    for ratio in (2.0, 5.0, 3.0, 6.0) * 10:
        noise.observe(ratio)
    assert noise.factor > 4.0
    for _ in range(20):
        noise.observe(1.0)
    assert noise.factor < 1.5


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


def test_a_device_that_says_nothing_for_long_is_looked_at_ever_less_often():
    world = World({"q": (1.0, True)}, {"stuck": {"q": menu(option("only", 90, {1: 0.01}))}}, exact=False)
    world.settle()
    first = world.submit("q")
    world.hang(first.batch)
    behind = world.submit("q")
    wakes = 0
    while world.now < 600.0 and world.wake_at < 600.0:
        world.wake()
        wakes += 1
    assert behind.state == WAITING, "it may be late, and there is nobody else"
    assert 10 < wakes < 500
