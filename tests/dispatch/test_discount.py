"""Pressure falls below what was computed where waits show that less will do."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.dispatch.binding import QueryClass
from workers.dispatch.late.discount import GROWTH, LEAST, SHRINKS, Discount
from workers.dispatch.late.state import RESERVE_S, ServedClass

from .driver import ANSWERED, World, menu, option
from .test_congestion import ACCURATE, QUICK, SLO_S, offers, served

LOOK_S = 0.1
PRESSURE = 0.4
TARGET_S = 0.03
RTT_S = 0.002


class Looks:
    """Looks at classes whose sustaining pressures and target waits are equal.

    Args:
        places: devices by application. A device that only some have runs another variant.
        slos_s: by application; :data:`SLO_S` otherwise.
    """

    def __init__(self, places: dict[str, list[str]], slos_s: dict[str, float] | None = None) -> None:
        devices = dict.fromkeys(device for its in places.values() for device in its)
        options = {device: ACCURATE if device == "accurate" else QUICK for device in devices}
        self.world = World(
            dict.fromkeys(places, SLO_S) | (slos_s or {}),
            {device: {name: menu(options[device]) for name in places if device in places[name]} for device in devices},
            rtt_s=RTT_S,
        )
        self.discount = Discount()
        for name in places:
            self.served(name).demand.rate.value = 100.0

    def served(self, name: str) -> ServedClass:
        return self.world.binding._groups.classes[QueryClass(name)]

    def look(self, name: str, times: int = 1) -> list[float]:
        """Return the pressures of a class after so many looks."""
        found = []
        classes = self.world.binding._groups.classes.values()
        for _ in range(times):
            self.world.advance(LOOK_S)
            pressures, targets_s = dict.fromkeys(classes, PRESSURE), dict.fromkeys(classes, TARGET_S)
            found.append(self.discount.adjust(pressures, targets_s, LOOK_S, self.world.now)[self.served(name)])
        return found


def test_pressure_falls_while_devices_are_idle_and_rises_faster_while_queries_wait():
    looks = Looks({"q": ["cpu", "gpu"]})
    falling = [PRESSURE, *looks.look("q", 20)]
    fell = GROWTH * LOOK_S * TARGET_S / SLO_S
    assert [before - after for before, after in pairwise(falling)] == pytest.approx([fell] * 20)
    # As much above the target as it was below.
    for device in ("cpu", "gpu"):
        looks.world.busy(device, LOOK_S + 2.0 * TARGET_S)
    assert looks.look("q")[0] - falling[-1] == pytest.approx(SHRINKS * fell)
    assert looks.look("q", 1000)[-1] == pytest.approx(LEAST)


def test_a_query_waits_for_the_first_device_whatever_that_runs():
    looks = Looks({"q": ["quick", "accurate"]})
    looks.world.busy("quick", 60.0)
    assert looks.look("q")[0] < PRESSURE
    looks.world.busy("accurate", 60.0)
    assert looks.look("q", 5)[-1] == PRESSURE


def test_waits_count_by_the_slo():
    fell = [PRESSURE - Looks({"q": ["cpu"]}, {"q": slo_s}).look("q")[0] for slo_s in (SLO_S, 2.0 * SLO_S)]
    assert fell[0] == pytest.approx(2.0 * fell[1]) and fell[1] > 0.0


def test_a_class_that_waits_keeps_up_the_pressure_of_those_on_its_devices():
    looks = Looks({"waits": ["gpu"], "shares": ["cpu", "gpu"], "apart": ["other"]})
    looks.world.busy("gpu", 60.0)
    assert looks.look("shares", 20)[-1] == PRESSURE
    assert looks.look("waits")[-1] == PRESSURE
    assert looks.look("apart")[-1] < PRESSURE
    # A class without queries does not wait.
    looks.served("waits").demand.rate.value = 0.0
    assert looks.look("shares", 20)[-1] < PRESSURE


def test_a_refusal_ends_the_discount_of_all_that_share_devices():
    looks = Looks({"refused": ["gpu"], "shares": ["cpu", "gpu"], "apart": ["other"]})
    assert looks.look("shares", 20)[-1] < PRESSURE
    looks.served("refused").record_refusal(looks.world.now)
    assert set(looks.look("shares", int(RESERVE_S / LOOK_S) - 1)) == {PRESSURE}
    assert looks.look("apart")[-1] < PRESSURE
    assert looks.look("shares", 3)[-1] < PRESSURE


@given(
    st.lists(st.tuples(st.integers(0, 32), st.floats(0.0, 1.0), st.floats(0.0, 2.0), st.booleans()), max_size=30),
)
def test_pressure_stays_between_one_level_and_the_sustaining_one(steps):
    looks = Looks({"q": ["cpu"], "other": ["cpu"]})
    mine, other = looks.served("q"), looks.served("other")
    for level, target, wait_s, refused in steps:
        now, pressure = looks.world.now, level * LEAST
        looks.world.busy("cpu", wait_s)
        if refused:
            other.record_refusal(now)
        pressures, targets_s = {mine: pressure, other: 1.0}, {mine: target * SLO_S, other: SLO_S / 2}
        found = looks.discount.adjust(pressures, targets_s, LOOK_S, now)
        assert min(pressure, LEAST) <= found[mine] <= pressure
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
