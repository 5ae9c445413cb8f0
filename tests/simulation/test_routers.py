"""The routers that others are compared with: they follow the plan and hear nothing of queues."""

from __future__ import annotations

from collections import Counter

import pytest

from scheduler.simulation import routers
from workers.dispatch.routing.least_completion import Router

DEVICES = ("x", "y", "z")


def router(name: str, seed: int = 1, **shares: float):
    made = routers.create(name, seed)
    for device in DEVICES:
        made.up(device)
    made.set_routes({"q": list((shares or {"x": 0.5, "y": 0.3, "z": 0.2}).items())})
    return made


def picks(made, count: int, **options) -> list[str | None]:
    return [made.pick("q", 0.0, 1.0, **options) for _ in range(count)]


def test_the_live_router_is_the_live_object():
    assert type(routers.create("least-completion")) is Router


def test_shares_hold_over_any_run_of_queries():
    found = picks(router("shares"), 100)
    assert Counter(found) == {"x": 50, "y": 30, "z": 20}
    for length in range(1, 101):
        assert abs(found[:length].count("x") - 0.5 * length) <= 1


def test_round_robin_takes_turns_whatever_the_shares():
    assert picks(router("round-robin"), 6) == ["x", "y", "z"] * 2


def test_uniform_takes_each_as_often_and_a_seed_gives_the_same_again():
    found = picks(router("uniform"), 3000)
    assert found == picks(router("uniform"), 3000) != picks(router("uniform", seed=2), 3000)
    assert all(count == pytest.approx(1000, rel=0.12) for count in Counter(found).values())


@pytest.mark.parametrize("name", routers.names())
def test_what_is_down_excluded_or_not_allowed_gets_nothing(name):
    made = router(name)
    made.down("x")
    assert set(picks(made, 30)) <= {"y", "z"}
    assert set(picks(made, 5, exclude=("y",))) == {"z"}
    assert set(picks(made, 5, allowed=("y",))) == {"y"}
    assert picks(made, 1, allowed=("x",)) == [None]
    assert made.pick("unknown", 0.0, 1.0) is None
    made.up("x")
    assert "x" in picks(made, 30)


@pytest.mark.parametrize("name", routers.names())
def test_a_device_without_a_share_gets_nothing_while_others_have_one(name):
    assert set(picks(router(name, x=1.0, y=0.0), 10)) == {"x"}


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"routing: 'best' is not one of late-binding, least-completion, shares"):
        routers.create("best")
