"""A core that stops in order hands queries and devices over to the next one."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from pathlib import Path

import msgspec
import pytest

from tests.executor.harness import WAIT_S, XY, Executor, application, resident, variant
from tools.waiting import eventually_async
from workers.gateway import executors, rollout
from workers.gateway.core_link import CoreLink
from workers.gateway.cores import Cores
from workers.gateway.in_flight import Answer, InFlightQuery
from workers.gateway.metrics import GatewayMetrics
from workers.gateway.remote_front import Fronts
from workers.gateway.rollout import Rollout
from workers.protocol.control import GatewayConfig
from workers.protocol.frames import Hello
from workers.protocol.specs import ApplicationSpec, DevicePlan, PeerSpec, PlanSpec, Route
from workers.trust.endpoints import Endpoint

from .conftest import config, new_front, row_query

SLO_S = 300.0


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.setattr(rollout, "RETIRE_S", WAIT_S)
    monkeypatch.setattr(executors, "TAKEOVER_S", WAIT_S)


class Site:
    """Devices, two cores, and the second's front, on whose queries the first decides."""

    def __init__(self, folder: Path, served: dict[str, tuple[Executor, ApplicationSpec, Path]]) -> None:
        self.ended: dict[str, object] = {}
        self.served = served
        self.cores = [Rollout(name, 64, GatewayMetrics(name)) for name in ("one", "two")]
        self.fronts = Fronts(self.cores[0].core, self.cores[0].status)
        self._path = folder / "core"
        self.front = new_front()
        self.choice = Cores(self.front, "two", self.cores[1], self._link)
        self.cores[0].on_changed = self.fronts.report

    def _link(self, _endpoint: Endpoint) -> CoreLink:
        return CoreLink(Endpoint(f"unix:{self._path}"), Hello("front", "two"), self.front)

    def config(self) -> GatewayConfig:
        devices, routes, applications = [], [], []
        for name, (executor, spec, path) in self.served.items():
            made = resident(variant(len(devices) + 1, path, spec.name), 0.01, max_batch=4)
            executor.apply(1, [made], [spec], [path])
            devices.append(DevicePlan(name, executor.endpoint, (made,)))
            routes.append(Route(spec.name, name, 1.0))
            applications.append(spec)
        peers = tuple(PeerSpec("gateway", name, name, rank, "", "box:1") for rank, name in enumerate(("one", "two"), 1))
        plan = PlanSpec(1, tuple(devices), tuple(routes))
        return msgspec.structs.replace(config(plan, applications), peers=peers)

    async def start(self) -> None:
        made = self.config()
        await self.fronts.listen(self._path)
        self.cores[0].configure(made)
        await self.until(lambda: all(one is not None for one in self.cores[0].executors.states().values()))
        self.cores[1].configure(made)
        await self.choice.configure(made)
        await self.until(lambda: isinstance(self.choice.chosen, CoreLink), "the front uses the first core")
        await self.until(lambda: not self.cores[0].status().cold, "everything is warm")
        await self.until(lambda: len(self.cores[1].executors.reach(0.0).reached) == len(self.served))

    def tick(self) -> None:
        now = time.monotonic()
        self.cores[0].tick(now)
        self.fronts.report()
        self.choice.tick(now)

    async def until(self, condition, what: str = "it is so") -> None:
        await eventually_async(lambda: condition() or self.tick(), why=what)

    def ask(self, name: str, spec: ApplicationSpec) -> InFlightQuery:
        def answer(_flight, outcome) -> None:
            assert name not in self.ended, "answered twice"
            self.ended[name] = outcome

        return self.front.submit(spec, row_query(name), None, time.monotonic(), answer)

    async def stop_first(self) -> None:
        await self.cores[0].retire(self.fronts.report)
        assert not self.cores[0].core.flights, "a core that has retired owes nothing"
        await self.fronts.close()
        await self.cores[0].close()


@contextlib.asynccontextmanager
async def site(folder: Path, *served: tuple[ApplicationSpec, Path]):
    async with contextlib.AsyncExitStack() as stack:
        found = {}
        for number, (spec, path) in enumerate(served):
            (home := folder / f"d{number}").mkdir()
            executor = await stack.enter_async_context(Executor(home, device=f"box/d{number}"))
            found[f"box/d{number}"] = executor, spec, path
        made = Site(folder, found)
        await made.start()
        yield made
        await made.choice.close()


async def test_a_core_that_stops_hands_over_what_waits_and_answers_what_runs(tmp_path, tiny_models):
    app = application("app", SLO_S, XY)
    async with site(tmp_path, (app, tiny_models["heavy"])) as made:
        flights = [made.ask(f"q{number}", app) for number in range(100)]
        await made.until(lambda: made.ended, "the first batch is answered")
        await made.stop_first()
        flights += [made.ask(f"r{number}", app) for number in range(10)]
        await made.until(lambda: len(made.ended) == len(flights), "all are answered")
        assert made.cores[1].executors.leads
    assert {type(outcome) for outcome in made.ended.values()} == {Answer}
    assert [flight.losses for flight in flights] == [0] * len(flights), "a hand-over is no loss"


async def test_the_next_core_knows_what_the_last_one_learned_of_a_device(tmp_path, tiny_models):
    """Its profile says 10 ms a row, and it takes less or more."""
    app = application("app", SLO_S, XY)
    async with site(tmp_path, (app, tiny_models["medium"])) as made:
        assert made.cores[1].core.learned("box/d0") is None
        for number in range(20):
            made.ask(f"q{number}", app)
            await made.until(lambda number=number: len(made.ended) == number + 1, "it is answered")
        learned = made.cores[0].core.learned("box/d0")
        await made.stop_first()
        await made.until(lambda: made.cores[1].executors.leads, "the second core has the device")
        inherited = made.cores[1].executors.get("box/d0").state.learned
    assert inherited == learned and learned.variants.keys() == {1}


async def test_queries_wait_for_devices_that_the_last_core_has_still_to_give_back(tmp_path, tiny_models):
    # Each application has one device. One of them hangs while its core stops, and the other one is given back.
    quick, hanging = application("quick", SLO_S, XY), application("hanging", SLO_S, XY)
    async with site(tmp_path, (quick, tiny_models["quick"]), (hanging, tiny_models["medium"])) as made:
        stuck = made.served["box/d1"][0].process
        stuck.send_signal(signal.SIGSTOP)
        first = made.ask("first", hanging)
        await made.until(lambda: made.cores[0].core.outstanding.get("box/d1"), "it is at the device")
        stopping = asyncio.create_task(made.stop_first())
        await made.until(lambda: made.cores[1].executors.leads, "the second core has the other device")
        flights = [first, made.ask("second", hanging), made.ask("third", quick)]
        await made.until(lambda: "third" in made.ended, "the device that is there serves")
        assert made.ended.keys() == {"third"}, "the other one's query waits"
        stuck.send_signal(signal.SIGCONT)
        await stopping
        await made.until(lambda: len(made.ended) == 3, "all are answered")
    assert {type(outcome) for outcome in made.ended.values()} == {Answer}
    assert [flight.losses for flight in flights] == [0, 0, 0]


async def test_a_core_without_a_successor_keeps_its_devices_to_the_end(tmp_path, tiny_models):
    app = application("app", SLO_S, XY)
    async with site(tmp_path, (app, tiny_models["quick"])) as made:
        alone = msgspec.structs.replace(made.cores[0].config, peers=made.cores[0].config.peers[:1])
        made.cores[0].configure(alone)
        await made.cores[0].retire(made.fronts.report)
        assert made.cores[0].executors.leads
        await made.fronts.close()
        await made.cores[0].close()
