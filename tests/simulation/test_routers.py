"""The routers that a simulation may have.

Some serve live, others are there to compare them with.
"""

from __future__ import annotations

from collections import Counter

import pytest

from scheduler.simulation.stacks import ROUTERS
from workers.dispatch.published.routing import LeastCompletionRouter

DEVICES = ("x", "y", "z")


def router(name: str, seed: int = 1, **shares: float):
    made = ROUTERS[name](seed)
    made.set_routes({"q": list((shares or {"x": 0.5, "y": 0.3, "z": 0.2}).items())})
    return made


def picks(made, count: int, able=DEVICES, application: str = "q") -> list[str | None]:
    return [made.pick(application, 1, able, 1.0, lambda device: 0.1, lambda device: 0) for _ in range(count)]


def test_the_live_router_is_the_live_object():
    assert type(ROUTERS["least-completion"](1)) is LeastCompletionRouter


def test_uniform_takes_each_as_often_and_a_seed_gives_the_same_again():
    found = picks(router("uniform"), 3000)
    assert found == picks(router("uniform"), 3000) != picks(router("uniform", seed=2), 3000)
    assert all(count == pytest.approx(1000, rel=0.12) for count in Counter(found).values())


@pytest.mark.parametrize("name", ROUTERS)
def test_what_is_not_able_gets_nothing(name):
    made = router(name)
    assert set(picks(made, 30, able=("y", "z"))) == {"y", "z"}
    assert set(picks(made, 5, able=("y",))) == {"y"}
    assert picks(made, 1, able=()) == picks(made, 1, application="unknown") == [None]
    assert "x" in picks(made, 30)


@pytest.mark.parametrize("name", ROUTERS)
def test_a_device_without_a_share_gets_nothing(name):
    assert set(picks(router(name, x=1.0, y=0.0), 10)) == {"x"}
