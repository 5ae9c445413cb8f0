"""Pressure falls below what was reckoned where waits show that less will do."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.dispatch.binding import QueryClass
from workers.dispatch.late.relief import SHRINKS, Relief
from workers.dispatch.late.state import RESERVE_S, ServedClass

from .driver import ANSWERED, World, menu, option
from .test_congestion import QUICK, SLO_S, offers, served

LOOK_S = 0.1
PRESSURE = 0.4
TARGET_S = 0.03


class Looks:
    """Looks at classes whose sustaining pressures and target waits are equal."""

    def __init__(self, places: dict[str, list[str]]) -> None:
        devices = dict.fromkeys(device for its in places.values() for device in its)
        self.world = World(
            dict.fromkeys(places, SLO_S),
            {device: {name: menu(QUICK) for name in places if device in places[name]} for device in devices},
        )
        self.relief = Relief()

    def served(self, name: str) -> ServedClass:
        return self.world.binding._groups.classes[QueryClass(name)]

    def look(self, name: str, times: int = 1) -> list[float]:
        """Return the pressures of a class after so many looks."""
        found = []
        classes = self.world.binding._groups.classes.values()
        for _ in range(times):
            self.world.advance(LOOK_S)
            pressures, targets_s = dict.fromkeys(classes, PRESSURE), dict.fromkeys(classes, TARGET_S)
            found.append(self.relief.adjust(pressures, targets_s, LOOK_S, self.world.now)[self.served(name)])
        return found


def test_pressure_falls_while_devices_are_idle_and_rises_faster_while_queries_wait():
    looks = Looks({"q": ["cpu", "gpu"]})
    falling = [PRESSURE, *looks.look("q", 20)]
    assert all(after < before for before, after in pairwise(falling))
    fell = falling[0] - falling[1]
    # As much above the target as it was below.
    for device in ("cpu", "gpu"):
        looks.world.busy(device, LOOK_S + 2.0 * TARGET_S)
    assert looks.look("q")[0] - falling[-1] == pytest.approx(SHRINKS * fell)
    assert looks.look("q", 1000)[-1] == 0.0


def test_a_class_leaves_to_others_that_wait_what_they_share():
    looks = Looks({"waits": ["gpu"], "shares": ["cpu", "gpu"], "apart": ["other"]})
    looks.world.busy("gpu", 60.0)
    assert looks.look("shares", 20)[-1] == PRESSURE
    assert looks.look("waits")[-1] == PRESSURE
    assert looks.look("apart")[-1] < PRESSURE


def test_a_refusal_ends_relief_for_all_that_share_devices():
    looks = Looks({"refused": ["gpu"], "shares": ["cpu", "gpu"], "apart": ["other"]})
    assert looks.look("shares", 20)[-1] < PRESSURE
    looks.served("refused").record_refusal(looks.world.now)
    kept = looks.look("shares", int(RESERVE_S / LOOK_S) - 1)
    assert kept[0] < PRESSURE / 2 or set(kept) == {PRESSURE}
    assert looks.look("apart")[-1] < PRESSURE
    assert looks.look("shares", 3)[-1] < PRESSURE


@given(
    st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 2.0), st.booleans()), max_size=30),
)
def test_pressure_stays_between_none_and_the_sustaining_one(steps):
    looks = Looks({"q": ["cpu"], "other": ["cpu"]})
    mine, other = looks.served("q"), looks.served("other")
    for pressure, target, wait_s, refused in steps:
        now = looks.world.now
        looks.world.busy("cpu", wait_s)
        if refused:
            other.record_refusal(now)
        found = looks.relief.adjust({mine: pressure, other: 1.0}, {mine: target * SLO_S, other: SLO_S / 2}, LOOK_S, now)
        assert 0.0 <= found[mine] <= pressure
        assert not refused or found[mine] == pressure
        looks.world.advance(LOOK_S)


def test_devices_that_are_quicker_than_profiled_come_to_a_lower_pressure():
    options = menu(option("slow", 85, {1: 0.1, 2: 0.2}), option("fast", 70, {1: 0.02, 2: 0.04, 4: 0.08, 8: 0.16}))
    found = []
    for slowness in (0.1, 1.0):
        devices = {f"d{i}": {"q": options} for i in range(4)}
        world = World({"q": 0.4}, devices, slowness=lambda device, slowness=slowness: slowness)
        # The same arrivals, so the same sustaining pressure.
        served(world, {"q": 100.0}, 10.0)
        assert {query.state for query in world.queries} == {ANSWERED}
        found.append(offers(world, "q")[0].needs.pressure)
    quick, as_profiled = found
    assert quick < as_profiled / 2
