"""No query is refused because of a plan's change, in whatever order messages come.

The devices follow plans as executors do: they load before they unload, and unload what a newer plan leaves out at any
time after the gateway has moved. All messages wait until the test delivers them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st

from workers.dispatch import stacks
from workers.gateway import executors
from workers.gateway.adoption import Adoption
from workers.gateway.executors import ExecutorConnection
from workers.gateway.metrics import GatewayMetrics
from workers.gateway.rollout import Rollout
from workers.protocol.endings import Ending
from workers.protocol.frames import ExecutorState, Moved, Refusal, Results, ResultTensor, RunBatch, WarmVariant
from workers.trust.endpoints import Endpoint

from .conftest import VARIANTS, application, config, new_front, plan, row_query

DEVICES = ("d0", "d1")
PLACES = [("numbers", "big"), ("numbers", "small"), ("nan", "only")]
BY_ID = {VARIANTS[name][variant][0]: (name, variant) for name, variant in PLACES}
#: so long that nothing depends on how long the test takes
SLO_S, RUN_S = 600.0, 20.0
APPLICATIONS = {name: application(name, SLO_S) for name in ("numbers", "nan")}
#: more turns than anything that is under way needs
TURNS = 200


class Device:
    """An executor, and the gateway's connection to it in one.

    Attributes:
        sent: messages to the gateway, not yet delivered.
        received: messages from it, not yet read.
    """

    unreached_since = owed_since = lease = None

    def __init__(self, name: str) -> None:
        self.device, self.endpoint = name, Endpoint(f"unix:/{name}")
        self.state: ExecutorState | None = None
        self.sent: deque[ExecutorState | Results | Refusal] = deque()
        self.received: deque[RunBatch | Moved] = deque()
        self.queue: deque[RunBatch] = deque()
        self.plan: dict[int, None] = {}
        self.warm: dict[int, None] = {}
        #: variants that left the plan of this version; the gateway must follow it before they go
        self.leaving: dict[int, int] = {}
        self.version = self.moved = 0

    # --- as the gateway's connection ---

    leave = ExecutorConnection.leave

    def connected(self, rollout: Rollout) -> Device:
        self._rollout = rollout
        self.state, self.moved = None, 0
        for messages in (self.sent, self.received, self.queue):
            messages.clear()
        self.report()
        return self

    def send(self, message: Moved) -> bool:
        self.received.append(message)
        return True

    def send_batches(self, messages) -> bool:
        self.received += [message for message, _ in messages]
        return True

    def look_after_lease(self, now: float) -> None:
        pass

    async def close(self, stops: bool = False) -> None:
        pass

    # --- as the executor ---

    def report(self) -> None:
        warm = tuple(WarmVariant(id, BY_ID[id][1], BY_ID[id][0], 90.0, True) for id in self.warm)
        self.sent.append(ExecutorState(self.device, 0, warm, False, {}, 0.0, newest_plan=self.version))

    def possible(self, world: World) -> list[Callable[[], object]]:
        found = [
            (self.version < world.version, partial(self.follow, world)),
            (self.cold(), self.load),
            (self.unloadable(), self.unload),
            (self.received, self.read),
            (self.queue, self.run),
            (self.sent, partial(world.deliver, self)),
        ]
        return [step for possible, step in found if possible]

    def cold(self) -> list[int]:
        return [id for id in self.plan if id not in self.warm]

    def follow(self, world: World) -> None:
        self.version, wanted = world.version, world.placed.get(self.device, [])
        self.plan = dict.fromkeys(VARIANTS[name][variant][0] for name, variant in wanted)
        self.report()
        self.load()

    def load(self) -> bool:
        """Load the plan's next variant; the plan is in force with the last one."""
        cold = self.cold()
        for id in cold[:1]:
            self.warm[id] = None
            self.report()
        if len(cold) <= 1:
            self.leaving = {id: self.leaving.get(id, self.version) for id in self.warm if id not in self.plan}
        return bool(cold)

    def unload(self) -> bool:
        gone = self.unloadable()
        for id in gone[:1]:
            del self.leaving[id], self.warm[id]
            self.report()
        return bool(gone)

    def unloadable(self) -> list[int]:
        gone = [id for id, version in self.leaving.items() if version <= self.moved and id not in self.plan]
        return [id for id in gone if all(batch.variant != id for batch in self.queue)]

    def read(self) -> bool:
        if not self.received:
            return False
        message = self.received.popleft()
        if isinstance(message, Moved):
            self.moved = max(self.moved, message.plan_version)
        elif message.variant in self.warm:
            self.queue.append(message)
        else:
            self.sent += [Refusal(id, "not_resident", "not here", True) for id, _, _ in message.queries]
        return True

    def run(self) -> bool:
        if not self.queue:
            return False
        batch, tensor = self.queue.popleft(), ResultTensor("y", "FP32", (1, 4), 16)
        for id, _, _ in batch.queries:
            self.sent.append(Results(batch.number, (id,), "v", 90.0, 95.0, 0.0, 0.001, 1, 0.001, (tensor,)))
        return True


class World:
    def __init__(self, stack: str, devices: Iterable[str]) -> None:
        self.stack, self.versions = stack, itertools.count(1)
        self.devices = {name: Device(name) for name in devices}
        metrics = GatewayMetrics()
        self.front = new_front()
        self.rollout = Rollout("gateway", 64, metrics)
        self.rollout._adoption = Adoption(1e9)
        self.front.core = self.rollout.core
        self.asked, self.outcomes = 0, []

    def place(self, placed: dict[str, list[tuple[str, str]]], reaches_gateway: bool = True) -> None:
        """Make a plan, which the gateway receives at once, or with the next one."""
        self.version, self.placed = next(self.versions), placed
        if not reaches_gateway:
            return
        endpoints = {name: device.endpoint.address for name, device in self.devices.items()}
        made = plan(self.version, placed, endpoints, self.stack, row_s=RUN_S)
        self.rollout.configure(config(made, list(APPLICATIONS.values())))

    def deliver(self, device: Device) -> bool:
        if not device.sent:
            return False
        message = device.sent.popleft()
        if self.rollout.executors.get(device.device) is not device:
            return True
        if isinstance(message, ExecutorState):
            device.state = message
            self.rollout.executor_state(device.device, message)
        elif isinstance(message, Refusal):
            self.rollout.core.refused_by_device(device.device, message)
        else:
            self.rollout.core.results(device.device, message, memoryview(bytes(16)))
        return True

    def ask(self, name: str, queries: int) -> None:
        for _ in range(queries):
            self.asked += 1
            query, now = row_query(str(self.asked), SLO_S), asyncio.get_running_loop().time()
            self.front.submit(
                APPLICATIONS[name], query, None, now, lambda flight, outcome: self.outcomes.append(outcome)
            )

    async def turn(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    async def follow(self) -> None:
        """Let all devices load what the newest plan wants, and nothing else happen."""
        for device in self.devices.values():
            device.follow(self)
            for _ in device.cold():
                device.load()
            while device.read() or self.deliver(device):
                await self.turn()

    async def settle(self) -> None:
        for _ in range(TURNS):
            moved = False
            for device in self.devices.values():
                if device.version < self.version:
                    device.follow(self)
                for step in (device.load, device.read, device.run, device.unload):
                    moved |= step()
                moved |= self.deliver(device)
            await self.turn()
            if not moved and len(self.outcomes) == self.asked:
                return
            if not moved:
                await asyncio.sleep(0.002)
        raise AssertionError(f"{len(self.outcomes)} of {self.asked} are answered")


placements = st.fixed_dictionaries(
    {}, optional={name: st.lists(st.sampled_from(PLACES), unique=True, max_size=2) for name in DEVICES}
).filter(lambda placed: {name for some in placed.values() for name, _ in some} == set(APPLICATIONS))


#: queries by application; the next plan; whether it reaches the gateway, and all devices at once; further steps
rounds = st.tuples(
    st.fixed_dictionaries({name: st.integers(0, 3) for name in APPLICATIONS}),
    placements,
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(0, 100), max_size=8),
)


@contextlib.asynccontextmanager
async def living(stack: str, first: dict, devices: Iterable[str] = DEVICES) -> AsyncIterator[World]:
    world = World(stack, devices)
    with mock.patch.object(
        executors, "ExecutorConnection", lambda device, *rest: world.devices[device].connected(rest[-1])
    ):
        world.place(first)
        await world.settle()
        yield world
        await world.rollout.close()


async def live(stack: str, first: dict, script: list[tuple[dict[str, int], dict, bool, bool, list[int]]]) -> World:
    async with living(stack, first) as world:
        for asked, placed, reaches_gateway, followed, chosen in script:
            for name, queries in asked.items():
                world.ask(name, queries)
            await world.turn()
            world.place(placed, reaches_gateway)
            if followed:
                await world.follow()
            for number in chosen:
                possible = [step for device in world.devices.values() for step in device.possible(world)]
                if possible:
                    possible[number % len(possible)]()
                    await world.turn()
        if script:
            world.place(script[-1][1])
        await world.settle()
    return world


BIG, NAN = ("numbers", "big"), ("nan", "only")


@example(
    # The first device has unloaded what the third plan places there, and its report has not arrived.
    stack="nereus",
    first={"d0": [NAN, BIG]},
    script=[
        ({"numbers": 0, "nan": 3}, {"d0": [BIG], "d1": [NAN]}, True, True, [0, 0, 0]),
        ({"numbers": 0, "nan": 1}, {"d0": [BIG, NAN]}, True, False, []),
    ],
)
@given(stack=st.sampled_from(stacks.LIVE), first=placements, script=st.lists(rounds, max_size=4))
def test_no_query_is_refused_and_the_newest_plan_is_adopted(stack, first, script):
    world = asyncio.run(live(stack, first, script))
    refused = [outcome for outcome in world.outcomes if isinstance(outcome, Exception)]
    assert not refused, refused
    assert world.rollout.status().adopted == world.version


async def test_a_device_that_is_back_gets_no_query_before_it_is_warm():
    async with living("nereus", {"d0": [BIG], "d1": [BIG, NAN]}) as world:
        back, other = world.devices.values()
        world.rollout.executor_lost("d0", "it ended")
        world.rollout.core.ended("d0", None)
        world.ask("numbers", 3)
        await world.turn()
        back.warm.clear()
        back.connected(world.rollout)
        world.deliver(back)
        await world.turn()
        batches = [[one for one in device.received if isinstance(one, RunBatch)] for device in (back, other)]
        assert [len(some) for some in batches] == [0, 1]
        await world.settle()
        assert not [outcome for outcome in world.outcomes if isinstance(outcome, Exception)]


async def test_no_application_moves_to_a_device_that_tries_a_suspect_alone():
    placed = {"d0": [BIG], "d1": [NAN], "d2": [NAN], "d3": [NAN]}
    async with living("nereus", placed, placed) as world:

        def given_a_batch() -> Device:
            (found,) = [device for device in world.devices.values() if device.received]
            return found

        world.ask("nan", 1)
        await world.turn()
        crashed = given_a_batch()
        crashed.received.clear()
        world.rollout.executor_lost(crashed.device, "it ended")
        world.rollout.core.ended(crashed.device, Ending(1, True, "killed by SIGSEGV"))
        await world.turn()
        reserved = given_a_batch()
        world.ask("numbers", 3)
        await world.turn()
        world.place({reserved.device: [BIG, NAN]})
        reserved.follow(world)
        while world.deliver(reserved):
            await world.turn()
        assert world.rollout.status().adopted is None
        assert reserved.read() and reserved.run() and world.deliver(reserved)
        world.rollout.tick(asyncio.get_running_loop().time())
        assert world.rollout.status().adopted == world.version
        await world.settle()
        assert not [outcome for outcome in world.outcomes if isinstance(outcome, Exception)]


async def test_an_old_device_that_takes_no_batches_for_a_moment_has_no_application_moved_too_early():
    small = ("numbers", "small")
    placed = {"d0": [BIG, NAN], "d1": [NAN], "d2": [], "d3": []}
    async with living("nereus", placed, placed) as world:
        old, second = world.devices["d0"], world.devices["d2"]
        world.place({"d0": [NAN], "d1": [NAN], "d2": [small], "d3": [small]})
        second.follow(world)
        while world.deliver(second):
            await world.turn()
        # The last device loads yet; so does the second one for the next plan.
        world.place({"d0": [NAN], "d1": [NAN], "d2": [BIG]})
        world.ask("numbers", 3)
        await world.turn()
        for in_use in (False, True):
            world.rollout.core._driver.set_up(old.device, in_use, asyncio.get_running_loop().time())
            world.rollout.tick(asyncio.get_running_loop().time())
            await world.turn()
        assert world.rollout.status().adopted is None
        await world.settle()
        assert world.rollout.status().adopted == world.version
        assert not [outcome for outcome in world.outcomes if isinstance(outcome, Exception)]
