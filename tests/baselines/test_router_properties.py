"""What holds for every router that is registered, whatever it is told."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.simulation import routers as routing
from workers.batching.latency import LatencyModel

DEVICES = tuple("uvwxyz")
LATENCY = LatencyModel([(1, 0.01), (2, 0.015), (4, 0.02)])
every_router = pytest.mark.parametrize("name", routing.names())
shares = st.dictionaries(st.sampled_from(DEVICES), st.sampled_from([0.0, 0.05, 0.3, 1.0, 2.5]), min_size=1)
#: what befalls a router: a query picked (and sent), an answer, a report, a device that comes or goes
events = st.lists(
    st.tuples(
        st.sampled_from(["pick", "pick", "pick", "done", "state", "down", "up"]),
        st.sampled_from(DEVICES),
        st.integers(1, 5),
    ),
    max_size=60,
)


def made(name: str, routes: dict[str, float], seed: int = 1):
    router = routing.create(name, seed)
    for device in DEVICES:
        router.up(device)
        router.service(device, "q", LATENCY, 4)
    router.set_routes({"q": list(routes.items())})
    return router


def played(name: str, routes: dict[str, float], happened, seed: int = 1) -> list[str | None]:
    """The picks of a router to which all that happened, each checked against what must hold."""
    router, up, sent, picks = made(name, routes, seed), set(DEVICES), [], []
    for step, (what, device, amount) in enumerate(happened):
        now = step * 0.004
        if what == "pick":
            exclude = (device,) if amount == 5 else ()
            allowed = None if amount < 4 else DEVICES[:3]
            chosen = router.pick("q", now, 0.1, rows=amount, exclude=exclude, allowed=allowed)
            able = {d for d in routes if d in up and d not in exclude and (allowed is None or d in allowed)}
            with_share = {d for d in able if routes[d] > 0}
            assert chosen is None or chosen in (with_share or able)
            assert chosen is not None or not with_share, "a query was refused though a planned device was there"
            picks.append(chosen)
            if chosen is not None:
                router.sent(chosen, "q", amount, now)
                sent.append((chosen, amount))
        elif what == "done" and sent:
            back, rows = sent.pop(0)
            router.done(back, "q", rows, now, amount > 1, 0.01, 0.02, rows)
        elif what == "state":
            router.state(device, {"q": amount}, amount * 0.01, False, now)
        elif what == "down":
            router.down(device)
            up.discard(device)
        elif what == "up":
            router.up(device)
            up.add(device)
    return picks


@every_router
@settings(max_examples=60, deadline=None)
@given(routes=shares, happened=events)
def test_only_devices_that_may_get_a_query_get_it_and_some_planned_one_always_does(name, routes, happened):
    played(name, routes, happened)


@every_router
@settings(max_examples=30, deadline=None)
@given(routes=shares, happened=events, seed=st.integers(0, 3))
def test_identical_histories_get_identical_picks(name, routes, happened, seed):
    assert played(name, routes, happened, seed) == played(name, routes, happened, seed)


@pytest.mark.parametrize("name", ["least-completion", "shares"])
@settings(max_examples=60, deadline=None)
@given(routes=shares.filter(lambda routes: any(routes.values())), count=st.integers(1, 300))
def test_shares_hold_over_any_number_of_queries_while_nothing_is_in_the_way(name, routes, count):
    router = made(name, routes)
    got = Counter(router.pick("q", 0.0, 1e9) for _ in range(count))
    total = sum(routes.values())
    for device, share in routes.items():
        assert abs(got[device] - count * share / total) < len(routes)


@settings(max_examples=30, deadline=None)
@given(routes=shares.filter(lambda routes: any(routes.values())), count=st.integers(1, 300))
def test_round_robin_gives_each_planned_device_as_many(routes, count):
    router = made("round-robin", routes)
    got = Counter(router.pick("q", 0.0, 1.0) for _ in range(count))
    planned = [device for device, share in routes.items() if share > 0]
    assert got.keys() <= set(planned)
    assert max(got[d] for d in planned) - min(got[d] for d in planned) <= 1


def test_uniform_gives_each_planned_device_as_many_whatever_its_share():
    router = made("uniform", {"u": 0.05, "v": 2.5, "w": 1.0, "x": 0.0})
    got = Counter(router.pick("q", 0.0, 1.0) for _ in range(3000))
    # Three standard deviations of a third of 3000.
    assert got.keys() == {"u", "v", "w"} and all(abs(count - 1000) < 78 for count in got.values())


@every_router
@settings(max_examples=30, deadline=None)
@given(routes=shares, happened=events)
def test_one_application_does_not_change_where_another_goes_on_devices_of_its_own(name, routes, happened):
    if name == "uniform":
        return  # one source of chance serves all applications
    alone = played(name, routes, happened)
    router_happened = [event for event in happened if event[0] == "pick"]
    router, other = made(name, routes), made(name, routes)
    other.set_routes({"q": list(routes.items()), "r": [("apart", 1.0)]})
    other.up("apart")
    for step in range(len(router_happened)):
        assert router.pick("q", step * 0.004, 0.1) == other.pick("q", step * 0.004, 0.1)
        assert other.pick("r", step * 0.004, 0.1) == "apart"
    assert len(alone) == len(router_happened)
