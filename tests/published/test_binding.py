"""The binding of published stacks keeps its contract with every policy and router."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.simulation.stacks import POLICIES
from workers.dispatch.binding import QueryClass, ServiceTerms
from workers.dispatch.options import OptionSet

from .world import SLO_S, World, menus, option

pytestmark = pytest.mark.wide

ROUTERS = ("active-first", "shares")
EXACT = option("exact", 40, 100, rate=20.0)
QUICK = option("quick", 10, 90, rate=60.0, slice_rows=2)
SPARE = option("spare", 5, 80, planned=False)
OFFERS = [
    {QueryClass("a"): OptionSet([EXACT, SPARE]), QueryClass("b"): OptionSet([QUICK, SPARE])},
    {QueryClass("a"): OptionSet([EXACT, QUICK]), QueryClass("a", 16): OptionSet([option("exact", 20, 100, rate=20.0)])},
    {QueryClass("b"): OptionSet([SPARE])},
    {},
]
events = st.lists(
    st.tuples(
        st.sampled_from(["ask"] * 12 + ["lose", "up", "down", "busy", "offer", "decline", "withdraw", "configure"]),
        st.integers(0, 2),
        st.integers(0, 15),
        st.sampled_from([0.0, 0.001, 0.01, 0.06]),
    ),
    min_size=1,
    max_size=60,
)
NAMED = (None, frozenset({"exact"}), frozenset({"spare", "quick"}), frozenset({"nothing"}))


def serving(*names: str, **given) -> World:
    world = World(**given)
    for name in names:
        world.device(name, menus(EXACT))
    return world


def happen(world: World, what: str, which: int, other: int) -> None:
    name = f"device-{which}"
    if what == "ask":
        # Exactly alone on an idle device takes 40 ms: 42.5 ms are enough where there is no way to go.
        slo_s = (SLO_S, 0.0425, 0.5)[which]
        size, permitted = 16 * (other % 3 == 2), NAMED[other // 4]
        world.ask("ab"[other % 2], slo_s, 1 + other % 5, other % 3 == 1, size=size, permitted=permitted)
    elif what == "lose":
        world.lose(name, again=other < 12)
    elif what in ("up", "down"):
        world.change(name, up=what == "up")
    elif what == "busy":
        world.change(name, busy_until=world.now + 0.02 * other)
    elif what == "offer":
        world.offer(name, OFFERS[other % 4])
    elif what == "decline" and world.under_way[name] and world.up[name]:
        world.decline(name)
    elif what == "withdraw" and world.queries:
        world.withdraw(world.queries[-1 - other % len(world.queries)])
    elif what == "configure":
        world.configure({"a": world.applications["a"]} if other < 8 else world.applications)


def played(policy, router, rtt_s, pace, late, happened) -> World:
    terms = {"a": ServiceTerms(SLO_S), "b": ServiceTerms(SLO_S, serve_late=late)}
    world = World(policy, router, rtt_s, terms, {"device-1": pace})
    for which in range(3):
        world.device(f"device-{which}", OFFERS[which])
    for what, which, other, wait_s in happened:
        happen(world, what, which, other)
        world.run(world.now + wait_s)
    world.run()
    world.check_all_ended()
    return world


@pytest.mark.parametrize("router", ROUTERS)
@pytest.mark.parametrize("policy", POLICIES)
@given(rtt_s=st.sampled_from([0.0, 0.004]), pace=st.sampled_from([1.0, 1.6]), late=st.booleans(), happened=events)
def test_every_query_ends_once_and_only_where_it_may(policy, router, rtt_s, pace, late, happened):
    played(policy, router, rtt_s, pace, late, happened)


@pytest.mark.parametrize("router", ROUTERS)
@given(policy=st.sampled_from(list(POLICIES)), rtt_s=st.sampled_from([0.0, 0.004]), happened=events)
def test_identical_calls_give_identical_decisions(router, policy, rtt_s, happened):
    first, second = [played(policy, router, rtt_s, 1.3, True, happened) for _ in range(2)]
    assert first.log == second.log


def test_one_that_waits_at_a_device_which_is_lost_goes_to_another():
    world = serving("x", "y")
    _, _, third = (world.ask() for _ in range(3))
    assert [entry[1] for entry in world.log] == ["x", "y"] and not third.ended
    world.run(0.01)
    world.lose("x")
    world.run()
    # The first one is tried again, with what waited there.
    assert [entry[1:] for entry in world.log[2:]] == [("y", "exact", [0, 2])]
    world.check_all_ended()


def test_what_waits_where_no_device_is_left_is_refused_and_what_arrives_then_too():
    world = serving("x")
    world.ask(), world.ask()
    world.change("x", up=False)
    world.run(0.0)
    assert world.log[1:] == [(0.0, "refused", 1)]
    assert world.ask().ended == ["refused"]


def test_options_that_change_in_a_round_refuse_nothing_that_the_last_of_them_can_answer():
    world = serving("x")
    world.device("y", {})
    world.ask()
    waits = world.ask()
    world.offer("x", {})
    world.offer("y", menus(QUICK))
    world.run()
    assert waits.ended == ["dispatched"] and world.log[-1][1:] == ("y", "quick", [1])


def test_queries_leave_a_device_that_others_work_holds_unless_there_is_no_other():
    world = serving("x", "y")
    for _ in range(4):
        world.ask()
    world.change("x", busy_until=1.0)
    world.run()
    assert [entry[1] for entry in world.log] == ["x", "y", "y"]
    world.change("x", busy_until=world.now + 0.1)
    world.change("y", busy_until=world.now + 0.05)
    held = world.now
    patient = world.ask()
    world.run()
    assert patient.ended == ["dispatched"] and world.log[-1][0] >= held + 0.05


def test_a_query_that_permits_few_variants_waits_apart_and_prefers_planned_ones():
    world = World("proteus")
    world.device("x", menus(EXACT, QUICK, SPARE))
    world.ask(permitted=frozenset({"spare", "quick"}))
    world.ask(permitted=frozenset({"spare"}))
    world.ask()
    world.run()
    ran = {ids[0]: variant for _, _, variant, ids in world.log}
    assert ran == {0: "quick", 1: "spare", 2: "quick"}


def test_the_only_device_with_a_permitted_variant_serves_it_though_the_plan_has_no_share_for_it():
    world = serving("x")
    world.device("y", menus(SPARE))
    world.ask(permitted=frozenset({"spare"}))
    assert world.log == [(0.0, "y", "spare", [0])]


def test_the_next_batch_is_sent_so_early_that_the_device_need_not_wait_for_it():
    world = serving("x", rtt_s=0.01)
    for _ in range(2):
        world.ask(slo_s=1.0)
    world.run()
    # The first one runs from 5 to 45 ms: what is sent at 40 ms is there by then.
    assert [entry[0] for entry in world.log] == pytest.approx([0.0, 0.04])


def test_queues_of_a_device_take_turns_whatever_waits_in_them():
    world = World(applications={"a": ServiceTerms(0.5, serve_late=True), "b": ServiceTerms(0.5)})
    world.device("x", {QueryClass(name): OptionSet([option(name, 40, 100, rate=20.0)]) for name in "ab"})
    for _ in range(40):
        world.ask("a", slo_s=0.5)
    for _ in range(2):
        world.ask("b", slo_s=0.5)
    world.run()
    assert [variant for _, _, variant, _ in world.log[:3]] == ["a", "b", "a"]
    assert not [entry for entry in world.log if entry[1] == "refused"]


@pytest.mark.parametrize(("pace", "ended"), [(1.0, "dispatched"), (1.5, "refused")])
def test_what_policies_count_on_is_what_the_device_was_seen_to_take(pace, ended):
    world = serving("x", policy="clipper", pace={"x": pace})
    for _ in range(30):
        world.ask(slo_s=1.0)
        world.run()
    # Enough for the 40 ms of its profile.
    assert world.ask(slo_s=0.041).ended == [ended]


def test_an_application_that_is_gone_has_its_queries_refused():
    world = World(applications={"a": ServiceTerms(SLO_S), "b": ServiceTerms(SLO_S)})
    world.device("x", OFFERS[0])
    world.ask("a")
    waits = world.ask("b")
    world.configure({"a": ServiceTerms(SLO_S)})
    assert waits.ended == ["refused"] and world.ask("b").ended == ["refused"]
    world.configure({"a": ServiceTerms(SLO_S), "b": ServiceTerms(SLO_S)})
    assert not world.ask("b").ended
    world.run()
    world.check_all_ended()


def test_one_without_a_deadline_is_never_given_up():
    world = serving("x", policy="proteus")
    world.change("x", busy_until=10.0)
    patient = world.ask(slo_s=float("inf"))
    world.run()
    assert patient.ended == ["dispatched"] and world.log[-1][0] >= 10.0


def test_a_device_that_declines_is_left_alone_for_a_moment():
    world = serving("x", "y")
    query = world.ask()
    world.decline("x")
    assert query.ended == ["dispatched"] * 2 and [entry[1] for entry in world.log] == ["x", "y"]
    world.decline("y")
    world.run()
    # Neither is asked again at once, and one of them is in the end.
    assert query.ended == ["dispatched"] * 3 and world.log[-1][0] >= 0.02


def test_active_first_avoids_late_answers_by_what_is_queued_and_observed():
    """Both devices have the same share and profile, but one takes twice as long."""
    got = {}
    for router in ROUTERS:
        world = serving("x", "y", router=router, pace={"x": 2.0})
        for _ in range(40):
            world.ask(slo_s=2.0)
            world.run(world.now + 0.1)
        learned = len(world.log)
        for _ in range(10):
            for _ in range(3):
                world.ask(slo_s=0.1)
            world.run(world.now + 1.0)
        refused = sum(entry[1] == "refused" for entry in world.log[learned:])
        got[router] = refused, sum(len(entry[3]) for entry in world.log[learned:] if entry[1] == "y")
    assert got["active-first"][0] < got["shares"][0]
    assert got["active-first"][1] > got["shares"][1]


def test_active_first_leaves_interfered_and_overloaded_devices_alone_while_another_is_active():
    world = serving("x", "y", router="active-first", pace={"x": 3.0})
    for _ in range(200):
        world.ask(slo_s=2.0)
        world.run(world.now + 0.2)
    asked = "".join(entry[1] for entry in world.log)
    assert asked.startswith("xyxy"), "by shares, until its runs show that x is slow"
    # It is left alone for ten seconds, and tried again then, so that it does not stay slow forever.
    assert "y" * 40 in asked and "x" in asked[100:]
    # More than y can do at its peak: both share again.
    for _ in range(100):
        world.ask(slo_s=2.0)
        world.run(world.now + 0.02)
    assert "x" in [entry[1] for entry in world.log[-10:]]
    world.run()
    world.check_all_ended()


def test_the_same_device_again_is_better_than_none():
    world = World()
    world.device("x", menus(EXACT))
    query = world.ask()
    world.decline("x")
    world.run()
    assert query.ended == ["dispatched"] * 2


def test_a_device_that_the_plan_gives_no_rate_serves_where_the_planned_one_declined():
    world = World()
    world.device("x", menus(option("exact", 40, 99, rate=10.0)))
    world.device("y", menus(option("exact", 40, 99, rate=0.0)))
    query = world.ask()
    assert world.log[-1][1] == "x"
    world.decline("x")
    assert query.ended == ["dispatched"] * 2 and world.log[-1][1] == "y"


def test_a_busy_time_that_is_no_time_is_an_error_and_changes_nothing():
    world = serving("x")
    with pytest.raises(ValueError, match="busy_until: must be a finite time"):
        world.binding.device_changed("x", 0.0, busy_until=float("nan"))
    assert world.ask().ended == ["dispatched"]


def test_only_queries_of_one_shape_and_size_class_run_together_the_earliest_deadline_first():
    world = World()
    world.device("x", OFFERS[1])
    world.ask(slo_s=1.0)
    for key, size in (("wide", 0), ("high", 0), ("wide", 16), ("wide", 0), ("high", 0)):
        world.ask(slo_s=1.0 if key == "wide" else 0.9, key=key, size=size)
    world.run()
    assert sorted(ids for _, _, _, ids in world.log[1:]) == [[1, 4], [2, 5], [3]]
    assert world.log[1][3] == [2, 5]
