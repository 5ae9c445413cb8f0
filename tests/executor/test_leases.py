"""One core at a time has the lease of a device, which never stays without one."""

from __future__ import annotations

import math

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.examples import examples
from tests.executor.harness import Executor, application, resident, rows, variant
from workers.executor.leases import AWAY_S, LEASE_S, RECLAIM_S, Lease
from workers.gateway.leases import YIELD_S, DeviceLease
from workers.protocol.frames import LeaseState, Refusal, ReleaseLease, Results

NAMES = ("one", "two", "three")


class Leases(RuleBasedStateMachine):
    """Cores that come, ask, release and go, at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.lease = Lease()
        self.lease.ranks = {name: rank for rank, name in enumerate(NAMES, 1)}
        self.now, self.connections, self.count = 100.0, {}, 0
        #: by connection: until when it has the device, as reported to it
        self.leased_until: dict[str, float] = {}
        self.epochs: dict[int, str] = {}

    @rule(name=st.sampled_from(NAMES))
    def connect(self, name):
        self.count += 1
        self.connections[f"{name}-{self.count}"] = name

    @precondition(lambda self: self.connections)
    @rule(data=st.data(), leads=st.booleans())
    def ask(self, data, leads):
        core = data.draw(st.sampled_from(sorted(self.connections)))
        before = self.lease.holder
        name, until = self.connections[core], self.leased_until.get(before, -math.inf)
        self.lease.ask(core, name, leads, self.now)
        terms = self.lease.state(core, self.now)
        assert terms.held == (self.lease.holder == core)
        if terms.held:
            if before is not None and before != core:
                # Taken only from one that let its time pass, or that did not drain in time.
                assert self.now >= until or NAMES.index(name) < NAMES.index(self.connections[before])
            assert self.epochs.setdefault(terms.epoch, core) == core
            self.leased_until[core] = self.now + LEASE_S
        else:
            # Somebody has it, or will have run out of time soon.
            assert terms.holder

    @precondition(lambda self: self.connections)
    @rule(data=st.data(), stops=st.booleans())
    def release(self, data, stops):
        core = data.draw(st.sampled_from(sorted(self.connections)))
        held = self.lease.held_by(core)
        self.lease.release(core, stops)
        assert not self.lease.held_by(core)
        if held:
            terms = self.lease.state(core, self.now)
            assert not terms.holder and terms.offered == stops

    @precondition(lambda self: self.connections)
    @rule(data=st.data())
    def close(self, data):
        core = data.draw(st.sampled_from(sorted(self.connections)))
        self.lease.gone(core, self.now)
        del self.connections[core]
        assert not self.lease.held_by(core)

    @rule(seconds=st.sampled_from((0.1, AWAY_S, LEASE_S, RECLAIM_S)))
    def wait(self, seconds):
        self.now += seconds

    @invariant()
    def at_most_one_core_has_the_device(self):
        assert sum(self.lease.held_by(core) for core in self.connections) <= 1

    @invariant()
    def a_device_is_offered_only_while_nobody_has_it(self):
        terms = self.lease.state("nobody", self.now)
        assert not (terms.offered and terms.holder)

    @invariant()
    def a_device_without_a_holder_is_free_soon(self):
        if self.lease.holder is None:
            assert not self.lease.state("nobody", self.now + AWAY_S).holder


TestLeases = Leases.TestCase
TestLeases.settings = examples(60, stateful_step_count=40)


def test_a_core_that_leads_elsewhere_gets_the_device_back_by_rank():
    lease = Lease()
    lease.ranks = {"one": 1, "two": 2}
    lease.ask("b", "two", False, 0.0)
    lease.ask("a", "one", False, 0.5)
    assert not lease.state("b", 0.5).reclaimed, "a core that has nothing waits for its turn"
    lease.ask("a", "one", True, 1.0)
    assert lease.state("b", 1.0).reclaimed and not lease.state("a", 1.0).held
    # A holder that does not drain keeps it no longer than that.
    for step in range(1, 12):
        lease.ask("b", "two", True, 1.0 + step / 2)
        lease.ask("a", "one", True, 1.0 + step / 2)
        assert lease.held_by("a") == (step / 2 >= RECLAIM_S), step
    lease.ask("b", "two", True, 7.0)
    assert not lease.state("a", 7.0).reclaimed


def test_a_core_that_connects_anew_gets_its_device_back_before_others_do():
    lease = Lease()
    lease.ask("first", "two", False, 0.0)
    lease.gone("first", 1.0)
    lease.ask("other", "one", True, 1.5)
    assert not lease.held_by("other")
    lease.ask("second", "two", False, 1.6)
    assert lease.held_by("second")


def test_a_core_that_starts_again_asks_for_its_device_at_once():
    lease, own, other = Lease(), DeviceLease("two"), DeviceLease("one")
    lease.ask("first", "two", False, 0.0)
    lease.gone("first", 1.0)
    for knows, wants in ((own, True), (other, False)):
        knows.reported(lease.state("another", 1.1), 1.1)
        assert knows.question(leads=False, stands_by=knows.elsewhere, now=1.1).wanted is wants


def test_a_core_that_stopped_asks_for_nothing_and_the_next_one_does_not_wait_for_it():
    lease, own, other = Lease(), DeviceLease("one"), DeviceLease("two")
    lease.ask("first", "one", False, 0.0)
    for knows, core in ((own, "first"), (other, "second")):
        knows.reported(lease.state(core, 0.0), 0.0)
    lease.release("first", stops=True)
    own.release(0.1, stops=True)
    for knows, core in ((own, "first"), (other, "second")):
        knows.reported(lease.state(core, 0.2), 0.2)
    assert other.offered and other.question(leads=False, stands_by=not other.offered, now=0.2).wanted
    assert not any(own.question(leads=False, stands_by=False, now=0.2 + second).wanted for second in range(100))


def test_a_core_that_stands_by_knows_devices_that_another_one_gave_up():
    lease, knows = Lease(), DeviceLease("two")
    states = []
    for change in (
        lambda: None,
        lambda: lease.ask("first", "one", False, 0.0),
        lambda: lease.release("first"),
        lambda: None,
        lambda: lease.ask("first", "one", False, 0.1),
    ):
        change()
        knows.reported(lease.state("second", 0.1), 0.1)
        states.append((knows.elsewhere, knows.given_up))
    assert states == [(False, False), (True, False), (False, True), (False, True), (True, False)]
    # One that has just started leaves free devices to better cores; one that gave its device back itself, too.
    lease.release("first")
    lease.ask("second", "two", True, 0.2)
    knows.reported(lease.state("second", 0.2), 0.2)
    assert knows.held and not knows.given_up
    knows.release(0.3)
    lease.release("second")
    knows.reported(lease.state("second", 0.3), 0.3)
    assert not knows.given_up


def test_a_core_that_gave_a_device_back_lets_the_other_one_ask_first():
    lease, worse, better = Lease(), DeviceLease("two"), DeviceLease("one")
    lease.ranks = {"one": 1, "two": 2}
    lease.ask("second", "two", True, 0.0)
    worse.reported(lease.state("second", 0.0), 0.0)
    lease.ask("first", "one", True, 0.1)
    before = lease.state("second", 0.1)
    worse.reported(before, 0.1)
    assert worse.reclaimed
    worse.release(0.2)
    lease.release("second")
    # Sent before the executor read that.
    worse.reported(before, 0.21)
    assert not worse.held
    free = lease.state("second", 0.22)
    worse.reported(free, 0.22)
    assert not worse.question(leads=True, stands_by=False, now=0.22).wanted
    better.reported(free, 0.3)
    assert better.question(leads=True, stands_by=False, now=0.3).wanted
    # The better one does not come.
    worse.reported(free, 0.2 + YIELD_S)
    assert worse.question(leads=True, stands_by=False, now=0.2 + YIELD_S).wanted
    lease.ask("second", "two", True, 1.3)
    worse.reported(lease.state("second", 1.3), 1.3)
    assert worse.held


async def served(core) -> str:
    """How the device answers a query of this core."""
    answer, _ = await core.query(rows(1))
    return "answered" if isinstance(answer, Results) else answer.code if isinstance(answer, Refusal) else "?"


async def test_a_device_takes_batches_of_one_core_alone(tmp_path, tiny_models):
    path = tiny_models["quick"]
    async with Executor(tmp_path) as executor:
        older = await executor.applied(1, [resident(variant(1, path))], [application()], [path])
        assert await served(older) == "answered", "a gateway that cannot ask has the device"
        one = await executor.peer(name="one", leases=True)
        two = await executor.peer(name="two", leases=True)
        assert one.of(LeaseState)[0].holder == "test"
        assert await served(one) == "not_leased"
        older.connection.close()
        await one.lease()
        assert (await two.asked()).holder == "one"
        assert (await served(one), await served(two)) == ("answered", "not_leased")

        one.connection.send(ReleaseLease())
        # The others hear of it without asking.
        await two.next(LeaseState, lambda state: not state.holder and not state.number)
        assert (await two.asked()).held
        assert (await served(one), await served(two)) == ("not_leased", "answered")
        assert (await one.asked(wanted=False)).holder == "two"

        again = await executor.peer(name="two", leases=True)
        assert not (await again.asked()).held, "two cores of one name do not take the device from each other"
        two.connection.close()
        await again.lease()
        assert (await served(again)) == "answered"
        again.connection.close()
        assert (await one.lease()).epoch > 3
        assert await served(one) == "answered"
