"""The router decides as one that looks at every device for every query."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.batching.latency import LatencyModel
from workers.dispatch.routing import shares
from workers.dispatch.routing.least_completion import Router
from workers.dispatch.routing.outlook import Device
from workers.dispatch.routing.soonest import Soonest

APPLICATIONS = ("app", "other")
#: equal ones among them, and one that was measured slower for two rows than for four
PROFILES = [[(1, 0.1), (4, 0.2)], [(1, 0.1), (4, 0.2)], [(1, 0.05), (2, 0.3), (4, 0.25)], [(1, 0.2), (4, 0.8)]]
#: by what a plan gives a device: nothing (0), standing by, a share
SHARES = (None, 0.0, 1.0, 1.0, 1.0, 0.25, 3.0)
#: what happens, the more often it stands here
KINDS = ("pick",) * 48 + ("done",) * 36 + ("lost", *("state",) * 6, *("up",) * 6, "down", "drain", "service", "plan")
#: seconds
BUDGETS = (0.0, 0.15, 0.3, 0.5, 0.8, 1.2, 2.0, 3.0, 5.0, math.inf, -1.0)


class Turns(shares.Round):
    """The same arithmetic, and every seat looked at."""

    def _next(self) -> shares._Seat:
        begun = self._now + shares._ROUNDING_ROWS / self._total
        free = [seat for seat in self._seats.values() if seat.present and not seat.barred]
        started = [seat for seat in free if seat.start <= begun]
        self._to_start = []
        if started:
            return min(started, key=lambda seat: (seat.start + seat.stride, seat.order))
        return min(free, key=lambda seat: (seat.start, seat.order))


class Exhaustive:
    """What :class:`Router` promises, by the plainest means. Knows of devices what they know of themselves."""

    def __init__(self) -> None:
        self.devices: dict[str, Device] = {}
        self.routes: dict[str, list[tuple[str, float]]] = {}
        self.turns: dict[tuple[str, frozenset[str] | None], tuple[Turns, list[int]]] = {}
        self.changes = 0

    def device(self, name: str) -> Device:
        return self.devices.setdefault(name, Device())

    def set_routes(self, routes: dict[str, list[tuple[str, float]]]) -> None:
        kept = {name for name, way in routes.items() if self.routes.get(name) == way}
        self.turns = {key: turns for key, turns in self.turns.items() if key[0] in kept}
        self.routes = routes
        routed = {device for way in routes.values() for device, _ in way}
        for name in routed:
            self.device(name)
        for name, device in list(self.devices.items()):
            owes = any(lane.outstanding for lane in device.lanes.values())
            if name not in routed and not device.up and not owes:
                del self.devices[name]

    def uses(self, name: str, up: bool, draining: bool) -> None:
        device = self.device(name)
        device.up, device.draining = up, draining
        if device.usable != (up and not draining):
            device.usable = not device.usable
            self.changes += 1

    def pick(self, application, now, budget_s, rows, exclude, allowed) -> tuple[str | None, dict[str, float]]:
        """The device, and of those that are in time when they answer; of no other than that in turn, if it is."""
        rows = max(rows, 1)
        able = [(d, s) for d, s in self.routes.get(application, ()) if allowed is None or d in allowed]
        planned = [(d, s) for d, s in able if s]
        turns, told = self.turns.setdefault((application, allowed), (Turns(planned), [-1]))
        if told != [self.changes]:
            told[:] = [self.changes]
            turns.attend([d for d, _ in planned if self.devices[d].usable])
        turn = turns.take(rows, exclude)
        choice = planned if turn is not None else [(d, s) for d, s in able if not s]
        answers = {d: self.answers(d, application, now, rows) for d, _ in choice if d not in exclude}
        answers = {d: at for d, at in answers.items() if self.devices[d].usable}
        latest = math.inf if turn is None else now + budget_s
        if turn is not None and answers[turn] <= latest:
            return turn, {turn: answers[turn]}
        in_time = {d: at for d, at in answers.items() if at <= latest}
        return (min(in_time, key=in_time.get) if in_time else turn), in_time

    def answers(self, name: str, application: str, now: float, rows: int) -> float:
        at, takes = self.devices[name].outlook(application, rows)
        return max(at, now + takes)


class Both:
    """A router and the exhaustive one, told the same."""

    def __init__(self, count: int) -> None:
        self.router, self.plain, self.now = Router(), Exhaustive(), 0.0
        self.names = [f"d{i}" for i in range(count)]
        self.under_way: list[tuple[str, str, int]] = []
        #: queries that went elsewhere than to the device in turn
        self.moved = 0
        for number, name in enumerate(self.names):
            self.uses(name, "up")
            for application in APPLICATIONS:
                self.serve(name, application, number)
        self.plan(0)

    def uses(self, name: str, what: str) -> None:
        getattr(self.router, what)(name)
        device = self.plain.device(name)
        if what == "down":
            device.forget_reports()
        self.plain.uses(name, what == "up", device.draining if what == "down" else False)

    def serve(self, name: str, application: str, number: int) -> None:
        latency, most = LatencyModel(PROFILES[number % 4]), 1 + number % 4
        self.router.service(name, application, latency, most)
        self.plain.device(name).serve(application, latency, most)

    def plan(self, number: int) -> None:
        routes = {}
        for place, application in enumerate(APPLICATIONS):
            given = [(d, SHARES[(number + i * (1 + number % 3) + place) % 7]) for i, d in enumerate(self.names)]
            routes[application] = [(d, share) for d, share in given if share is not None]
        if number % 11 == 10:
            del routes["other"]
        self.router.set_routes(routes)
        self.plain.set_routes(routes)

    def happens(self, what: str, name: str, application: str, rows: int, number: int) -> None:
        if what == "plan":
            self.plan(number)
        elif what in ("up", "down"):
            self.uses(name, what)
        elif what == "service":
            self.serve(name, application, number)
        elif what in ("state", "drain"):
            queued, busy_s = {application: rows * 3, "of others": number % 2}, (0.0, 0.1, 1.0, 3.0)[number // 2 % 4]
            self.router.state(name, queued, busy_s, what == "drain", self.now)
            device = self.plain.device(name)
            device.reported(queued, busy_s, self.now)
            self.plain.uses(name, device.up, what == "drain")
        elif what in ("done", "lost") and self.under_way:
            device, of, sent = self.under_way.pop(number % len(self.under_way))
            run_s, batch_rows = 0.05 * rows, rows
            self.router.done(device, of, sent, self.now, what == "done", 0.0, run_s, batch_rows)
            self.plain.device(device).done(of, sent, self.now, what == "done", run_s, batch_rows)

    def query(self, name: str, application: str, rows: int, number: int, exactly: bool) -> None:
        exclude = ((), (), (), (name,), (name, self.names[0]))[number % 5]
        allowed = (None, None, None, frozenset(self.names[::2]), frozenset(self.names[:1]))[number // 5 % 5]
        budget_s = BUDGETS[number // 25 % len(BUDGETS)]
        wanted, in_time = self.plain.pick(application, self.now, budget_s, rows, exclude, allowed)
        found = self.router.pick(application, self.now, budget_s, rows, exclude, allowed)
        if wanted in in_time and not exactly:
            assert found in in_time
        elif wanted in in_time:
            # To the rounding of sums: outlooks of other rows than the query's serve as bounds.
            assert found == wanted or in_time.get(found, math.inf) <= in_time[wanted] + 1e-9
        else:
            assert found == wanted
        self.moved += len(in_time) > 1
        if found is not None:
            self.under_way.append((found, application, rows))
            self.router.sent(found, application, rows, self.now)
            self.plain.device(found).sent(application, rows, self.now)


def played(count: int, seed: int, exactly: bool) -> None:
    """Hundreds of events, of which queries are most, in spells of more and of less that ends."""
    chance, both = random.Random(seed), Both(count)
    for _ in range(400):
        what = chance.choice(KINDS)
        both.now += chance.choice((0.0, 0.0, 0.001, 0.05, 0.13))
        name, application = chance.choice(both.names), chance.choice(("app", "app", "app", "other"))
        rows, number = chance.choice((1, 1, 1, 1, 2, 3, 5, 0)), chance.randrange(10_000)
        if what == "pick":
            both.query(name, application, rows, number, exactly)
        else:
            both.happens(what, name, application, rows, number)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, Soonest.LOOKS), st.integers(0, 2**32))
def test_whatever_happens_the_device_is_the_one_that_a_look_at_each_finds(count, seed):
    played(count, seed, exactly=True)


@settings(max_examples=40, deadline=None)
@given(st.integers(Soonest.LOOKS + 1, 40), st.integers(0, 2**32))
def test_of_many_it_is_the_one_in_turn_or_one_that_is_in_time_if_any_is(count, seed):
    played(count, seed, exactly=False)


@pytest.mark.parametrize("busy_s", [math.nan, math.inf, -math.inf])
def test_a_report_that_tells_no_time_is_refused_and_changes_nothing(busy_s):
    router = Router()
    for name in ("a", "b"):
        router.up(name)
        router.service(name, "app", LatencyModel([(1, 0.1)]), 4)
    router.set_routes({"app": [("a", 1.0), ("b", 1.0)]})
    router.state("a", {}, 1.0, False, 0.0)
    with pytest.raises(ValueError, match="busy_s: must be a finite time"):
        router.state("a", {"app": 50}, busy_s, True, 0.0)
    for _ in range(6):
        assert router.pick("app", 0.0, 0.5) == "b", "a is busy for a second, as it told before"


@pytest.mark.parametrize("run_s", [math.nan, math.inf, -math.inf, 1e300])
def test_no_answer_makes_a_device_incomparable(run_s):
    router = Router()
    for name in ("a", "b"):
        router.up(name)
        router.service(name, "app", LatencyModel([(1, 0.1)]), 4)
    router.set_routes({"app": [("a", 1.0), ("b", 1.0)]})
    for now in range(50):
        router.sent("a", "app", 1, float(now))
        router.done("a", "app", 1, now + 0.5, True, 0.0, run_s, 1)
    assert {router.pick("app", 100.0, 0.5) for _ in range(4)} == {"a", "b"}
    router.state("b", {}, 5.0, False, 100.0)
    assert {router.pick("app", 100.0, 0.5) for _ in range(4)} == {"a"}
