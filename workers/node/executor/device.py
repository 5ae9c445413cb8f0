"""The device's loop: decide, run, answer; and between batches whatever else needs the device."""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from workers import log
from workers.batching import policies
from workers.batching.base import BatchPolicy
from workers.protocol.frames import (
    DriftReport,
    ExecutorState,
    FrameConnection,
    Grant,
    OverloadReport,
    Refusal,
    Result,
    StateReport,
    StatsReport,
    Submit,
)
from workers.protocol.specs import ApplicationSpec, DeviceInfo, DeviceState

from . import batches
from .estimates import Guard, LatencyEstimate
from .exclusive import Exclusive, Kind, Request
from .grants import Granted
from .lanes import Batch, Lanes
from .loaded import Role
from .peers import Peers
from .queries import Invalid, Query, read, split
from .residency import Residency
from .runtime import RunError, Runtime
from .stats import Meters, Second

_log = log.get("device")
#: a FIRST run that takes longer than this hands the queue back, so that gateways can still find another device
FIRST_RUN_PATIENCE_S = 0.1
_LOADER_NICE = 10
TIMER_S = 0.001
#: a batch that is expected to run no longer than this runs in the loop's own thread: to hand it to another one and back
#: takes more CPU time than such a batch does
HERE_S = 0.0002
#: a guard that leaves no policy any time to wait on purpose
HURRY_S = 1e6


class Device:
    """Owns the device: everything that runs on it goes through :meth:`run`'s loop, one thing at a time.

    Models run in one thread of their own (``session.run`` releases the GIL), so the event loop goes on answering; but
    for those that are over in a moment (:data:`HERE_S`).
    """

    def __init__(self, info: DeviceInfo, runtime: Runtime, peers: Peers, queue_rows: int, profile_share: float):
        self.info = info
        self.runtime = runtime
        self.peers = peers
        self._queue_rows = queue_rows
        self._loop = asyncio.get_running_loop()
        self.clock: Callable[[], float] = self._loop.time
        self._thread = ThreadPoolExecutor(1, "device")
        self._loader = ThreadPoolExecutor(1, "loader", initializer=self._renice)
        self._wake = asyncio.Event()
        self._exclusive = Exclusive(profile_share)
        self.lanes = Lanes(self._create_policy)
        self.residency = Residency(
            runtime,
            self.lanes,
            peers,
            load=self.load,
            exclusive=lambda call: self.exclusive(Kind.PLAN, call),
            on_change=self.changed,
            on_stranded=lambda queries: self._refuse_all(queries, "not_resident", "its variant left this device"),
            clock=self.clock,
        )
        self.meters = Meters(info.id)
        self._second = Second(self.clock())
        self._waiting: dict[tuple[FrameConnection, int], Query] = {}
        self._policy_errors: dict[str, str] = {}
        self._guard = Guard()
        self._overslept_s = 0.0
        self._busy_until = 0.0
        self._last_arrival = -1e9
        self.draining = False
        self._closed = ""
        self._stopping = False
        self._told_rows = 0

    def _renice(self) -> None:
        # A load beside serving takes the core in turns with it; niced it takes what is left over. With more cores the
        # session's own threads would inherit the niceness, and an unprivileged process cannot take it back.
        if self.info.kind == "cpu" and self.runtime.cores == 1:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOADER_NICE)

    def _create_policy(self, application: ApplicationSpec) -> BatchPolicy:
        spec = application.batching
        try:
            policy = policies.create(spec.policy, spec.options)
            self._policy_errors.pop(application.name, None)
        except ValueError as error:
            # An application that cannot be batched as asked is better served by the default than not at all.
            self._policy_errors[application.name] = f"batching: {error}; the default policy is used"
            policy = policies.create("proteus", {})
        return policy

    # --- queries ----------------------------------------------------------------------------------------------------

    def submit(self, connection: FrameConnection, message: Submit, body: memoryview) -> None:
        """Queue a query or refuse it."""
        query = self._admit(connection, message, body, self.lanes.rows)
        if query is None:
            return
        if not self.lanes.add(query):
            self._refuse(connection, message, "not_resident", "no warm variant here may serve this query", True)
            return
        self._waiting[connection, message.id] = query
        self._wake.set()

    def grant(self, connection: FrameConnection, message: Grant, body: memoryview) -> None:
        """Queue a batch as the gateway put it together; what is wrong with one of its queries is that one's alone."""
        limit = max(1, message.max_rows)
        batch = Granted(message.application, message.variant, limit, connection, self.clock())
        queued = self.lanes.rows
        for submit, part in split(message, body):
            query = self._admit(connection, submit, part, queued)
            if query is not None:
                batch.add(query)
                self._waiting[connection, query.submit.id] = query
        if not batch.queries:
            return
        if not self.lanes.grant(batch):
            text = f"variant {message.variant} of {message.application} is not warm on this device"
            for query in batch.queries:
                query.lane = None
            self._refuse_all(batch.queries, "not_resident", text)
            return
        self._wake.set()

    def _admit(self, connection: FrameConnection, message: Submit, body: memoryview, queued: int) -> Query | None:
        """The query, if it may be queued here behind so many rows; otherwise it is refused."""
        now = self.clock()

        def refuse(code: str, text: str, retryable: bool) -> None:
            self._refuse(connection, message, code, text, retryable)

        application = self.residency.applications.get(message.application)
        if application is None:
            return refuse("not_resident", f"application {message.application!r} is not on this device", True)
        try:
            arrays = read(message, body, application)
        except Invalid as error:
            return refuse("invalid", str(error), False)
        if (connection, message.id) in self._waiting:
            return refuse("invalid", f"id: {message.id} is waiting already", False)
        self._last_arrival = now
        self._second.arrived(message.application, message.rows)
        if self._closed:
            return refuse("draining", self._closed, True)
        # A single query larger than the bound may still wait in an empty queue.
        if queued and queued + message.rows > self._queue_rows:
            self._second.refused(message.application, message.rows)
            return refuse("overloaded", f"{queued} rows wait here already, the limit is {self._queue_rows}", True)
        return Query(message, connection, arrays, now, application)

    def cancel(self, connection: FrameConnection, id: int) -> None:
        """Forget a query that still waits; one that runs already is answered as ever."""
        query = self._waiting.pop((connection, id), None)
        if query is not None:
            self.lanes.remove(query)
            self._wake.set()

    def gone(self, connection: FrameConnection) -> None:
        """Forget everything that a closed connection waits for."""
        for key in [key for key in self._waiting if key[0] is connection]:
            self.lanes.remove(self._waiting.pop(key))
        self._wake.set()

    def _refuse(self, connection: FrameConnection, submit: Submit, code: str, text: str, retryable: bool) -> None:
        self.meters.answered(submit.application if submit.application in self.residency.applications else "", "", code)
        self.peers.send(connection, Refusal(submit.id, code, text, retryable))

    def _refuse_all(self, queries: list[Query], code: str, text: str) -> None:
        """Refuse queries that were taken out of their queues; retryable while they have time left."""
        now = self.clock()
        for query in queries:
            self._waiting.pop((query.connection, query.submit.id), None)
            if code == "late" and self._had_time(query):
                self._second.refused(query.submit.application, query.rows)
            self._refuse(query.connection, query.submit, code, text, query.deadline > now)

    def _had_time(self, query: Query) -> bool:
        """Whether a query came with about its application's whole SLO: one whose client wants it sooner than a plan
        promises says nothing about the plan."""
        application = self.residency.applications.get(query.submit.application)
        return application is None or query.submit.budget_s >= 0.8 * application.slo_s

    def _hand_back(self, code: str, text: str) -> None:
        queries = self.lanes.queries()
        for query in queries:
            self.lanes.remove(query)
        self._refuse_all(queries, code, text)

    # --- state ------------------------------------------------------------------------------------------------------

    def state(self) -> ExecutorState:
        """What gateways should know now."""
        return ExecutorState(
            device=self.info.id,
            plan_version=self.residency.plan_version,
            warm=tuple(loaded.wire() for loaded in self.residency.loaded.values() if not loaded.closing),
            draining=self.draining or bool(self._closed),
            queued=self.lanes.queued(),
            busy_s=max(0.0, self._busy_until - self.clock()),
            errors={**self.residency.errors, **self._policy_errors},
        )

    def device_state(self) -> DeviceState:
        """What the control plane should know now."""
        errors = {**self.residency.errors, **self._policy_errors}
        return DeviceState(
            device=self.info.id,
            state="draining" if self.draining or self._closed else "up",
            plan_version=self.residency.plan_version,
            warm=tuple(sorted(loaded.id for loaded in self.residency.loaded.values() if not loaded.closing)),
            detail="; ".join(f"{name}: {text}" if name else text for name, text in sorted(errors.items())),
        )

    def changed(self) -> None:
        """Tell everybody."""
        self.peers.tell_gateways(self.state())
        self.peers.report(StateReport(self.device_state()))
        self._wake.set()

    def set_draining(self, draining: bool) -> None:
        """Ask gateways to send nothing new, or to send again; what comes all the same is still queued."""
        if draining != self.draining:
            self.draining = draining
            self.changed()

    def metrics(self) -> str:
        """Prometheus exposition text."""
        roles = {role.value: 0 for role in Role}
        for loaded in self.residency.loaded.values():
            roles[loaded.role.value] += 1
        return self.meters.text(self.lanes.rows, roles)

    async def tick(self) -> None:
        """Ten times a second: the queues' state to gateways while rows wait; each second: statistics."""
        ticks, tidying = 0, None
        while True:
            await asyncio.sleep(0.1)
            ticks += 1
            rows = self.lanes.rows
            if rows or self._told_rows:
                self.peers.tell_gateways(self.state())
                self._told_rows = rows
            if ticks % 10 == 0:
                self._report_second()
                # Beside: letting a variant go may take a while, and silence would look like a hung process. A plan on
                # its way brings its own order in.
                if (tidying is None or tidying.done()) and not self.residency.settling:
                    tidying = self._loop.create_task(self.residency.tidy())

    def _report_second(self) -> None:
        now, second = self.clock(), self._second
        self._second = Second(now)
        loaded = self.residency.loaded
        memory = self.runtime.memory_used()
        self.peers.report(
            StatsReport(second.close(now, self.info.id, self.lanes.rows, memory, self.residency.plan_version, loaded))
        )
        for name, arrived, refused in second.overloads():
            self.peers.report(OverloadReport(name, arrived, refused))
        for one in loaded.values():
            ratio = one.drifted(now)
            if ratio is not None:
                self.peers.report(DriftReport(one.id, ratio))

    # --- the device's time ------------------------------------------------------------------------------------------

    async def load(self, call: Callable[..., Any], *args: Any) -> Any:
        """Run a call in the loader thread, beside serving."""
        return await self._loop.run_in_executor(self._loader, call, *args)

    def exclusive(
        self, kind: Kind, call: Callable[[], Any], expected_s: float = 0.0, patience_s: float = 0.0
    ) -> asyncio.Future:
        """Run a call in the device's thread when it is due; the future has its outcome. ``patience_s``: how long a
        FIRST run waits for empty queues."""
        request = Request(kind, call, self._loop.create_future(), expected_s, self.clock() + patience_s)
        self._exclusive.add(request)
        self._wake.set()
        return request.future

    async def run(self) -> None:
        """The loop; returns once :meth:`stop` was called and nothing waits any more."""
        while True:
            self._wake.clear()
            now = self.clock()
            request = self._exclusive.before_batches(now, self.lanes.rows)
            if request is not None:
                await self._run_request(request)
                continue
            hurry = self.draining or self._stopping or self.residency.hurried
            guard_s = HURRY_S if hurry else self._guard.seconds
            step = self.lanes.decide(now, self._exclusive.may_hold(), guard_s)
            if step.late:
                # Given up on after waking late: the next deliberate wait must end that much earlier.
                self._guard.observe(self._overslept_s)
                self._refuse_all(step.late, "late", "cannot be answered in time here")
            if step.batch is not None:
                await self._run_batch(step.batch, now)
                continue
            if self._stopping and not self.lanes.rows:
                return
            if step.late:
                continue
            slos = [application.slo_s for application in self.residency.applications.values()]
            request, until = self._exclusive.instead_of_idling(
                now, step.wait_until, self._last_arrival, min(slos, default=1.0)
            )
            if request is not None:
                await self._run_request(request)
                continue
            await self._sleep(until)

    async def _sleep(self, until: float) -> None:
        # The loop's timers count whole milliseconds: shorter waits would spin on the core that models run on. The guard
        # makes up for waking late.
        pause_s = max(until - self.clock(), TIMER_S)
        timer = self._loop.call_later(pause_s, self._wake.set) if pause_s < math.inf else None
        await self._wake.wait()
        if timer is not None:
            timer.cancel()
        self._overslept_s = max(0.0, self.clock() - until)

    async def _run_batch(self, batch: Batch, decided: float) -> None:
        loaded, rows, extent = batch.loaded, batch.rows, batch.extent
        estimate = loaded.at(extent)
        for query in batch.queries:
            self._waiting.pop((query.connection, query.submit.id), None)
        expected_s = estimate.model(decided).seconds(rows)
        self._busy_until = decided + expected_s
        loaded.used_at = decided
        # The loop's clock counts whole milliseconds, which is too coarse to learn a device's pace from.
        began = time.perf_counter()
        here = self._runs_here(estimate, rows)
        try:
            if here:
                answers, run_s = batches.run(loaded.model, batch.queries, batch.limit)
            else:
                answers, run_s = await self._loop.run_in_executor(
                    self._thread, batches.run, loaded.model, batch.queries, batch.limit
                )
        except Exception as error:
            # Not the model's own error, those are answers: a fault of ours must not cost the other queries theirs.
            _log.exception("batch failed", variant=loaded.variant.name)
            answers, run_s = [batches.Answer(query, error=str(error)) for query in batch.queries], 0.0
        held_s = time.perf_counter() - began
        self._answer(answers, batch, rows, decided, run_s, held_s)
        now = self.clock()
        self._busy_until = 0.0
        self.lanes.observe(batch, now, run_s)
        if run_s > 0 and all(answer.error is None for answer in answers):
            self._guard.observe(now - decided + self._overslept_s - expected_s)
            estimate.observe(now, rows, run_s, now - decided, extent)
        self._overslept_s = 0.0
        self._second.batch(batch, run_s)
        self.meters.batch(batch, run_s, decided)
        if here:
            # Nothing was waited for: what arrived meanwhile is read before the next batch is chosen.
            await asyncio.sleep(0)

    def _runs_here(self, estimate: LatencyEstimate, rows: int) -> bool:
        """Whether a batch is over sooner than a thread could be given it and give it back. On a GPU none is: what hangs
        there must not keep this process from answering."""
        return self.info.kind == "cpu" and estimate.profiled.seconds(rows) * max(1.0, estimate.ratio) <= HERE_S

    def _answer(
        self, answers: list[batches.Answer], batch: Batch, rows: int, started: float, run_s: float, held_s: float
    ) -> None:
        """Send each query of a batch its result, or its own error; those of one gateway in one write."""
        variant, accuracy = batch.loaded.variant, batch.loaded.accuracy
        normalized = variant.accuracy_normalized if variant.accuracy_normalized is not None else 0.0
        results: dict[FrameConnection, list[tuple[Result, tuple]]] = {}
        served = 0
        for answer in answers:
            query = answer.query
            if answer.error is not None:
                self._refuse(query.connection, query.submit, "failed", f"{variant.name}: {answer.error}", False)
                continue
            served += 1
            result = Result(
                query.submit.id,
                variant.name,
                accuracy,
                normalized,
                max(0.0, started - query.arrived),
                run_s,
                rows,
                answer.headers,
                held_s,
            )
            results.setdefault(query.connection, []).append((result, answer.body))
        for connection, some in results.items():
            self.peers.send_all(connection, some)
        self.meters.answered(variant.application, variant.name, "ok", served)

    async def _run_request(self, request: Request) -> None:
        started = self.clock()
        self._busy_until = started + request.expected_s
        patience = None
        if request.kind is Kind.FIRST:
            patience = self._loop.call_later(FIRST_RUN_PATIENCE_S, self._first_run_takes_long)
        try:
            outcome = await self._loop.run_in_executor(self._thread, request.call)
        except Exception as error:
            if not request.future.done():
                request.future.set_exception(error)
            elif not isinstance(error, RunError):
                _log.warning("work nobody waits for failed", kind=request.kind, error=str(error))
        else:
            if not request.future.done():
                request.future.set_result(outcome)
        finally:
            self._busy_until = 0.0
            if patience is not None:
                patience.cancel()
                if not self._stopping:
                    self._closed = ""
        took = self.clock() - started
        if request.kind is not Kind.PLAN:
            self._second.profiled(took)
            self.meters.profiled(took)
        if request.kind is Kind.MEASURE:
            self._exclusive.measured(self.clock(), took)
        # Whoever asked goes on first, so that its next request can be weighed against the next batch.
        await asyncio.sleep(0)

    def _first_run_takes_long(self) -> None:
        self._closed = "a new variant has its first run on this device"
        self._hand_back("draining", self._closed)

    async def stop(self, grace_s: float) -> None:
        """Refuse what is new, finish what waits within ``grace_s`` seconds, refuse the rest."""
        self._stopping = True
        self._closed = "this device is shutting down"
        self.changed()
        until = self.clock() + grace_s
        while self.lanes.rows and self.clock() < until:
            await asyncio.sleep(0.005)
        self._hand_back("draining", self._closed)
        self._wake.set()

    def close(self) -> None:
        """Let the threads go."""
        for pool in (self._thread, self._loader):
            pool.shutdown(wait=False, cancel_futures=True)
