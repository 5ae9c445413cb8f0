"""Rules that hold for any devices, options, arrivals, answers, plans and mishaps."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.examples import examples
from workers.dispatch.binding import QueryClass

from .driver import ANSWERED, DISPATCHED, REFUSED, WAITING, World, menu, option

APPLICATIONS = ["a", "b", "c"]
DEVICES = ["d0", "d1", "d2", "d3"]
SLOS = [0.05, 0.1, 0.3, 2.0]
#: seconds of one row; shorter and longer than SLOs
SPEEDS = [0.001, 0.01, 0.04, 0.09, 0.25, 0.8]


@st.composite
def options(draw, name: str):
    first = draw(st.sampled_from(SPEEDS))
    points = {1: first}
    for rows in sorted(draw(st.sets(st.sampled_from([2, 3, 4, 8, 64]), max_size=3))):
        # Mostly cheaper a row, now and then dearer, or quicker than a smaller batch.
        points[rows] = first * draw(st.sampled_from([0.8, 1.0, 1.3, 0.4 * rows, 1.0 * rows, 1.2 * rows]))
    accuracy = draw(st.sampled_from([50.0, 80.0, 95.0, 99.5, 100.0]))
    return option(name, accuracy, points, weight=draw(st.sampled_from([1.0, 1.0, 5.0])))


@st.composite
def offers(draw):
    found = {}
    for application in sorted(draw(st.sets(st.sampled_from(APPLICATIONS), min_size=0, max_size=3))):
        count = draw(st.integers(1, 3))
        found[application] = menu(*(draw(options(f"{application}{i}")) for i in range(count)))
    return found


applications = st.dictionaries(
    st.sampled_from(APPLICATIONS), st.tuples(st.sampled_from(SLOS), st.booleans()), max_size=3
)
devices = st.sampled_from(DEVICES)
times = st.sampled_from([0.0, 0.0005, 0.003, 0.01, 0.03, 0.1, 0.4, 3.0])


class Dispatching(RuleBasedStateMachine):
    @initialize(
        applications=applications,
        kinds=st.lists(offers(), min_size=1, max_size=3),
        count=st.integers(1, len(DEVICES)),
        rtt_s=st.sampled_from([0.0, 0.0, 0.002, 0.04]),
        noise=st.sampled_from([0.0, 0.0, 0.05, 0.6]),
        slow=st.sampled_from([1.0, 1.0, 2.5]),
    )
    def begin(self, applications, kinds, count, rtt_s, noise, slow):
        self.kinds = kinds
        found = {name: kinds[i % len(kinds)] for i, name in enumerate(DEVICES[:count])}
        draw = random.Random(1)

        def slowness(device: str) -> float:
            # The first device is the slow one.
            return (slow if device == "d0" else 1.0) * draw.lognormvariate(0.0, noise)

        self.world = World(applications, found, rtt_s, slowness if noise or slow != 1.0 else None, exact=False)

    @rule(
        application=st.sampled_from([*APPLICATIONS, "unknown"]),
        rows=st.lists(st.sampled_from([1, 1, 1, 2, 3, 7, 300]), min_size=1, max_size=12),
        budget_s=st.sampled_from([None, None, None, -0.1, 0.0, 0.02, 0.1, 5.0]),
    )
    def submit(self, application, rows, budget_s):
        for count in rows:
            self.world.submit(application, count, budget_s)

    @rule(
        asked=st.lists(
            st.tuples(
                st.sampled_from([*APPLICATIONS, "unknown"]),
                st.sampled_from([1, 1, 1, 2, 300]),
                st.sampled_from([None, None, None, 0.02, 5.0]),
                st.sampled_from([None, None, "long"]),
            ),
            min_size=1,
            max_size=12,
        )
    )
    def submit_together(self, asked):
        self.world.submit_together(asked)

    @rule(
        asked=st.lists(
            st.tuples(st.sampled_from(APPLICATIONS), st.sampled_from([None, "0", "1", "01", "12", "9"])),
            min_size=1,
            max_size=12,
        ),
        together=st.booleans(),
    )
    def submit_restricted(self, asked, together):
        classes = [
            QueryClass(name, 0, None if which is None else frozenset(name + digit for digit in which))
            for name, which in asked
        ]
        if together:
            self.world.submit_together([(one, 1, None, None) for one in classes])
        else:
            for one in classes:
                self.world.submit(one)

    @rule(seconds=times)
    def advance(self, seconds):
        self.world.advance(seconds)

    @rule(seconds=times)
    def oversleep(self, seconds):
        self.world.oversleep(seconds)

    @rule(data=st.data())
    def withdraw(self, data):
        waiting = [query for query in self.world.queries if query.state == WAITING]
        among = waiting if waiting and data.draw(st.booleans()) else self.world.queries
        if among:
            self.world.withdraw(data.draw(st.sampled_from(among)))

    @rule(device=devices, up=st.booleans())
    def set_up(self, device, up):
        if device in self.world.rtts:
            self.world.set_up(device, up)

    @rule(device=devices)
    def lose(self, device):
        self.world.lose(device)

    @rule(data=st.data())
    def decline(self, data):
        if dispatched := [query for query in self.world.queries if query.state == DISPATCHED]:
            self.world.decline(data.draw(st.sampled_from(dispatched)).batch)

    @rule(device=devices, which=st.integers(0, 2))
    def swap_menus(self, device, which):
        if device in self.world.rtts:
            self.world.offer(device, self.kinds[which % len(self.kinds)])

    @rule(device=devices, menus=offers())
    def set_menus(self, device, menus):
        if device in self.world.rtts:
            self.world.offer(device, menus)

    @rule(applications=applications)
    def set_applications(self, applications):
        self.world.set_applications(applications)

    @rule(device=devices)
    def back(self, device):
        if device in self.world.rtts:
            self.world.back(device)

    @rule(device=devices, seconds=times)
    def busy(self, device, seconds):
        if device in self.world.rtts:
            self.world.busy(device, seconds)

    @rule(device=devices, rtt_s=st.sampled_from([0.0, 0.001, 0.02]))
    def set_rtt(self, device, rtt_s):
        if device in self.world.rtts:
            self.world.set_rtt(device, rtt_s)

    @rule()
    def finish(self):
        self.world.finish()

    def teardown(self):
        if hasattr(self, "world"):
            self.world.finish()


Dispatching.TestCase.settings = examples(40, stateful_step_count=40)
TestDispatching = Dispatching.TestCase


@st.composite
def worlds(draw, late: bool, exact: bool = True):
    """Draw worlds of applications and devices.

    Args:
        late: some applications may serve late queries.
        exact: devices do what is expected of them.
    """
    kinds = draw(st.lists(offers(), min_size=1, max_size=3))
    names = DEVICES[: draw(st.integers(1, len(DEVICES)))]
    served = {name: (draw(st.sampled_from(SLOS)), late and draw(st.booleans())) for name in APPLICATIONS}
    rtt_s = draw(st.sampled_from([0.0, 0.0, 0.002, 0.04]))
    return World(served, {name: kinds[i % len(kinds)] for i, name in enumerate(names)}, rtt_s, exact=exact)


arrivals = st.lists(
    st.tuples(st.sampled_from([0.0, 0.0, 0.001, 0.02, 0.2]), st.sampled_from(APPLICATIONS), st.sampled_from([1, 1, 3])),
    max_size=120,
)


@given(world=worlds(late=True), arrivals=arrivals)
def test_what_is_dispatched_is_answered_in_time_by_devices_that_keep_their_times(world, arrivals):
    for pause_s, application, rows in arrivals:
        world.advance(pause_s)
        world.submit(application, rows)
    world.finish()
    assert {query.state for query in world.queries} <= {ANSWERED, REFUSED}
    for query in world.queries:
        if query.state == REFUSED:
            late = world.applications[query.application][1]
            assert not late or not any(
                query.query_class in d.option_sets for d in world.binding._groups.devices.values()
            )


@given(world=worlds(late=False, exact=False), arrivals=arrivals)
def test_nothing_waits_for_ever_for_devices_that_never_answer(world, arrivals):
    for pause_s, application, rows in arrivals:
        if pause_s:
            until = world.now + pause_s
            while world.wake_at <= until:
                world.wake()
            world.now = until
        world.submit(application, rows)
    world.wake_alone()
    assert {query.state for query in world.queries} <= {DISPATCHED, REFUSED}
