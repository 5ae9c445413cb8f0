"""Properties of every registered router, whatever is asked of it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.simulation.stacks import ROUTERS

pytestmark = pytest.mark.wide

DEVICES = tuple("uvwxyz")
every_router = pytest.mark.parametrize("name", ROUTERS)
shares = st.dictionaries(st.sampled_from(DEVICES), st.sampled_from([0.0, 0.05, 0.3, 1.0, 2.5]), min_size=1)
some_share = shares.filter(lambda routes: any(routes.values()))
#: queries: rows, able devices, and when each device would answer
asked = st.lists(
    st.tuples(
        st.integers(1, 5),
        st.sets(st.sampled_from(DEVICES)),
        st.fixed_dictionaries({device: st.sampled_from([0.05, 0.5, 2.0]) for device in DEVICES}),
    ),
    max_size=40,
)


def made(name: str, routes: dict[str, float], seed: int = 1, **others):
    router = ROUTERS[name](seed)
    router.set_routes({"q": list(routes.items()), **others})
    return router


def played(name: str, routes: dict[str, float], queries, seed: int = 1, **others) -> list[str | None]:
    """A router's picks, each checked against what must hold."""
    router, picks = made(name, routes, seed, **others), []
    for rows, able, expected_s in queries:
        chosen = router.pick("q", rows, able, 1.0, expected_s.__getitem__, lambda device: 0)
        planned = {device for device in able if routes.get(device, 0) > 0}
        assert chosen in planned if planned else chosen is None
        picks.append(chosen)
        for other in others:
            assert router.pick(other, 1, {"apart"}, 1.0, lambda device: 0.1, lambda device: 0) == "apart"
    return picks


def undisturbed(name: str, routes: dict[str, float], count: int) -> Counter:
    router = made(name, routes)
    return Counter(router.pick("q", 1, set(routes), 1.0, lambda device: 0.1, lambda device: 0) for _ in range(count))


@every_router
@given(routes=shares, queries=asked, seed=st.integers(0, 3))
def test_some_able_planned_device_gets_each_query_and_histories_repeat(name, routes, queries, seed):
    assert played(name, routes, queries, seed) == played(name, routes, queries, seed)


@pytest.mark.parametrize("name", ["least-completion", "shares"])
@given(routes=some_share, count=st.integers(1, 300))
def test_shares_hold_over_any_number_of_queries_within_one(name, routes, count):
    got, total = undisturbed(name, routes, count), sum(routes.values())
    assert all(abs(got[device] - count * share / total) < 1 + 1e-4 for device, share in routes.items())


def test_uniform_gives_each_planned_device_as_many_whatever_its_share():
    got = undisturbed("uniform", {"u": 0.05, "v": 2.5, "w": 1.0, "x": 0.0}, 3000)
    # Three standard deviations of a third of 3000.
    assert got.keys() == {"u", "v", "w"} and all(abs(count - 1000) < 78 for count in got.values())


@pytest.mark.parametrize("name", sorted(set(ROUTERS) - {"uniform"}))
@given(routes=shares, queries=asked)
def test_one_application_does_not_change_where_another_goes(name, routes, queries):
    # Uniform has one source of chance for all applications.
    assert played(name, routes, queries) == played(name, routes, queries, r=[("apart", 1.0)])
