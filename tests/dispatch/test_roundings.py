"""A run that ends in time by one sum and late by another is decided once."""

from __future__ import annotations

import pytest

from workers.dispatch.late.selection import ROUNDING_S

from .driver import ANSWERED, DISPATCHED, REFUSED, Query, World, menu, option


class Impatient(Query):
    """Is looked at a thousand times at most."""

    looks = 0

    @property
    def deadline(self) -> float:
        self.looks += 1
        assert self.looks < 1000, "it is looked at again and again"
        return self._deadline

    @deadline.setter
    def deadline(self, deadline: float) -> None:
        self._deadline = deadline


def ask(world: World, due: float) -> Query:
    query = Impatient(len(world.queries), "q", world.now, due, 1)
    world.queries.append(query)
    world.call("arrived", [query])
    return query


@pytest.mark.parametrize(
    ("now", "run_s", "due"),
    [(0.016700526610207347, 0.013, 0.030000525610207347), (0.017608954409538188, 0.013, 0.030908953409538188)],
)
def test_a_query_that_fits_an_idle_device_but_for_a_rounding_is_not_scheduled_there_for_ever(now, run_s, due):
    rtt_s = 0.0003
    world = World({"q": 1.0}, {"cpu": {"q": menu(option("only", 90, {1: run_s}))}}, rtt_s)
    world.settle()
    world.now = now
    latest = due + ROUNDING_S
    assert now + rtt_s + run_s > latest and run_s <= latest - now - rtt_s, "no such case"
    assert ask(world, due).state in (DISPATCHED, REFUSED)


@pytest.mark.parametrize(
    ("busy_s", "due"), [(0.009301727699722661, 0.05930172669972266), (0.005018903856198156, 0.055018902856198156)]
)
@pytest.mark.timeout(120)
def test_a_query_whose_device_is_free_too_late_by_a_rounding_does_not_stay_there_for_ever(busy_s, due):
    run_s = 0.05
    world = World({"q": 1.0}, {"cpu": {"q": menu(option("only", 90, {1: run_s}))}})
    world.settle()
    latest = due + ROUNDING_S
    assert busy_s + run_s > latest and run_s <= latest - busy_s, "no such case"
    world.busy("cpu", 0.9 * busy_s)
    query = ask(world, due)
    world.busy("cpu", busy_s)
    world.advance(0.2)
    assert query.state in (ANSWERED, REFUSED)
