"""The binding with devices that are lost, hang, decline or are slower than profiled."""

from __future__ import annotations

import pytest

from workers.dispatch.binding import QueryClass
from workers.dispatch.feedback import BACKOFF_FACTOR, BACKOFF_S, LARGEST_BACKOFF_S
from workers.dispatch.latency_correction import RatioEstimator

from .driver import ANSWERED, BOTH, DISPATCHED, LARGE, REFUSED, SMALL, WAITING, World, menu, option


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
    world.busy("gpu", 2.0)
    world.finish()
    assert [query.device for query in queries].count("cpu") == 3


@pytest.mark.parametrize("before", [1, 2])
def test_a_load_that_overtakes_a_batch_ends_when_it_was_said_to(before):
    # With two batches, the answer to the first arrives during the load.
    only = option("only", 100, {1: 0.01})
    world = World({"q": 0.3}, {"gpu": {"q": menu(only)}}, rtt_s=0.002)
    queries = [world.submit("q") for _ in range(before)]
    world.until(0.0105 if before == 2 else 0.0005)
    assert len(world.under_way["gpu"]) == before
    world.overtake("gpu", 0.2)
    queries += [world.submit("q") for _ in range(3)]
    world.advance(0.2)
    assert world.binding._groups.devices["gpu"].free_at < world.now + 0.02
    world.back("gpu")
    world.finish()
    assert [query.state for query in queries] == [ANSWERED] * len(queries)


def test_an_answer_on_its_way_does_not_wait_for_a_load():
    only = option("only", 100, {1: 0.05})
    world = World({"q": 0.3}, {"gpu": {"q": menu(only)}}, rtt_s=0.004)
    first = world.submit("q")
    # The device is idle again; the core does not know yet.
    world.until(0.053)
    world.busy("gpu", 0.2)
    # After the load there is time for one of them.
    second, third = world.submit("q"), world.submit("q")
    assert first.state == DISPATCHED
    world.advance(0.2)
    world.back("gpu")
    world.finish()
    assert [query.state for query in (first, second, third)] == [ANSWERED, ANSWERED, REFUSED]


def test_a_device_that_was_lost_during_a_load_serves_at_once_when_it_is_back():
    only = option("only", 100, {1: 0.05})
    world = World({"q": 0.1}, {"gpu": {"q": menu(only)}})
    world.busy("gpu", 10.0)
    world.lose("gpu")
    world.set_up("gpu", True)
    query = world.submit("q")
    world.finish()
    assert query.state == ANSWERED


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
    assert world.binding._groups.classes[QueryClass("q")].offers[0].pressure(world.now) > 0.2


def test_a_busy_device_is_idle_again_when_others_work_there_ends():
    world = World({"faces": 0.3}, {"cpu": BOTH})
    world.busy("cpu", 0.1)
    assert world.submit("faces").state == WAITING
    world.advance(5.0)
    assert world.submit("faces").state == DISPATCHED


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
    # The device that just gave it back is not asked again at once.
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
        # Batches given back in the meantime are one and the same incident.
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
    # Except for a few, which probe the slow one.
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
