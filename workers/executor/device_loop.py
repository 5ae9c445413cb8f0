"""The device loop: runs everything on the device, one thing at a time.

The life of a batch in the executor:

1. ``server`` reads a ``RunBatch``, and ``intake`` finds its application's request shapes.
2. ``batch.admit`` checks every query; one that is wrong is refused alone.
3. The batch is refused where the device is closed, its queue full, or the variant not warm.
4. It starts at once if the device is idle and nothing waits (:meth:`DeviceLoop.start`); else it joins the queue.
5. The loop takes the oldest batch, unless exclusive work (a load, a first run, a measuring step) is due.
6. Queries that would be late even if they ran now and alone are refused; the others run together.
7. A short batch runs in the loop's own thread, a longer one in the device's; the watchdog limits both.
8. ``answers`` runs the model, queries of one shape together, and encodes its outputs.
9. ``replies`` sends one ``Results`` for queries with outputs of like shapes, and a ``Refusal`` for each that failed.
10. ``accounting`` notes what the batch did, and accounts for it later (statistics, metrics, drift).
"""

from __future__ import annotations

import asyncio
import functools
import math
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from workers import log
from workers.protocol.frame_connection import FrameConnection
from workers.protocol.run_limits import limit_s
from workers.protocol.specs import DeviceInfo

from . import answers, lull_checks
from .accounting import Accounts, Entry
from .batch import DispatchedBatch
from .batch_queue import BatchQueue
from .exclusive import Exclusive, ExclusiveRequest, WorkKind
from .loaded import DeviceResidents, Loaded
from .replies import Replies
from .runtime import RunError, RunStopped
from .thread import Thread
from .watchdog import Watchdog

_log = log.get("executor.device_loop")
#: the shortest timer in seconds: uvloop's timers count milliseconds, and shorter ones would spin
TIMER_S = 0.001
#: expected seconds up to which a batch runs in the loop's own thread: a hand-over would take more CPU time
INLINE_S = 0.0002
#: the same on a device of one core, where the loop could only take that core from the model meanwhile
INLINE_ONE_CORE_S = 0.01
#: the watchdog's limit in the loop's own thread, in seconds: the process answers no peer meanwhile, and its supervisor
#: waits for :attr:`.backoff.RestartTiming.silent`
INLINE_LIMIT_S = 3.0
#: a run is overdue this many seconds after its expected end
OVERDUE_S = 0.1
#: seconds for which batches of one read may start at once; then the loop reads other sockets
AT_ONCE_S = 0.0005
_LATE = "cannot be answered in time here"
_PLAN_WORK = "a variant is being warmed up on this device"


class DeviceLoop:
    """The device's time.

    Models run in one thread of their own (``session.run`` releases the GIL), so that the event loop goes on answering;
    batches that are over in a moment (:data:`INLINE_S`) run in the loop.

    Args:
        watchdog: limits every run.
        profile_share: least share of a busy device's time for measuring steps (0 to 1).
        on_change: called when long plan work is requested, begins or ends.
    """

    def __init__(
        self,
        info: DeviceInfo,
        watchdog: Watchdog,
        residents: DeviceResidents,
        queue: BatchQueue,
        replies: Replies,
        accounts: Accounts,
        profile_share: float,
        on_change: Callable[[], None],
    ):
        self._inline_s = 0.0
        # On a GPU nothing runs in the loop: a kernel that hangs must not keep this process from answering.
        if info.kind == "cpu":
            self._inline_s = INLINE_ONE_CORE_S if len(info.cores) == 1 else INLINE_S
        self._watchdog = watchdog
        self._residents = residents
        self._queue = queue
        self._replies = replies
        self._accounts = accounts
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._thread = Thread("device", self._loop)
        self._exclusive = Exclusive(profile_share)
        #: whether a batch or a request has the device, in its thread
        self._busy = False
        self._request: ExclusiveRequest | None = None
        #: whether the next step is scheduled, and when there is one if nothing happens before
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        #: connection and number of the read with which the last batch came that started at once; when its first one did
        self._read: tuple[FrameConnection, int] | None = None
        self._read_began = 0.0
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self.busy_until = 0.0
        self.stopping = False

    async def run(self) -> None:
        """Returns once it is stopping and nothing waits; raises internal faults."""
        self.wake()
        await self._ended

    def wake(self) -> None:
        if not self._scheduled and not self._busy:
            self._scheduled = True
            self._loop.call_soon(self._step)

    def busy_s(self, now: float) -> float:
        """Seconds until the device is free; an overdue run takes as long again as it is."""
        return (abs(self.busy_until - now) if self._busy else 0.0) + self._exclusive.plan_s()

    def hand_back_late(self, batches: Iterable[DispatchedBatch], now: float) -> None:
        """Refuse queries that plan work would make late: another device may be free."""
        if self._exclusive.plan_s() or (self._request is not None and self._request.kind is WorkKind.PLAN):
            for batch in batches:
                late = batch.take_late(self._residents.variants[batch.variant], now + self.busy_s(now))
                self._replies.refuse_all(late, "draining", _PLAN_WORK)

    def overdue(self, now: float) -> bool:
        return self._busy and now > self.busy_until + OVERDUE_S

    def close(self) -> None:
        self._thread.close()

    # --- the next step ----------------------------------------------------------------------------------------------

    def _step(self) -> None:
        self._scheduled = False
        if self._busy or self._ended.done():
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            self._next()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)

    def _next(self) -> None:
        self._accounts.settle()
        waiting = self._queue.waiting
        now = time.monotonic()
        request = self._exclusive.before_batches(now, waiting[0].arrived if waiting else math.inf)
        if request is not None:
            return self._begin(request)
        while waiting:
            batch = waiting.popleft()
            if self._run(batch, self._residents.variants[batch.variant], now):
                # Read first what arrived during a run in this thread.
                return self.wake()
        if self.stopping:
            return self._ended.set_result(None)
        request, until = self._exclusive.when_idle(now, self._queue.last_arrival, self._residents.tightest_slo_s())
        if request is not None:
            self._begin(request)
        elif until < math.inf:
            self._timer = self._loop.call_later(max(until - time.monotonic(), TIMER_S), self._step)

    # --- a batch ----------------------------------------------------------------------------------------------------

    def start(self, batch: DispatchedBatch, loaded: Loaded) -> bool:
        """Start a batch if the device is idle and nothing waits; False: queue it."""
        if self._busy or self._scheduled or self._exclusive.requests:
            return False
        read = batch.connection, batch.connection.reads
        if read != self._read:
            self._read, self._read_began = read, time.monotonic()
        elif time.monotonic() - self._read_began > AT_ONCE_S:
            return False
        try:
            self._run(batch, loaded, batch.arrived)
        except Exception as error:
            self._fail(error)
        return True

    def _run(self, batch: DispatchedBatch, loaded: Loaded, now: float) -> bool:
        """Run what is not late of a batch; False: nothing is left of it."""
        late = batch.take_late(loaded, now)
        if late:
            self._replies.refuse_all(late, "late", _LATE)
        if not batch.rows:
            return False
        loaded.used_at = now
        began = time.monotonic()
        usual_s = loaded.at(batch.extent).usual_s(batch.rows)
        most_s = limit_s(usual_s, loaded.application.slo_s)
        given = (loaded.model, batch)
        if usual_s > self._inline_s:
            self._busy, self.busy_until = True, began + usual_s
            call = (most_s, loaded.id, answers.of_batch, given)
            self._thread.call(self._watchdog.call, call, functools.partial(self._ran, batch, loaded, began))
            return True
        try:
            outcome = self._watchdog.call(min(most_s, INLINE_LIMIT_S), loaded.id, answers.of_batch, given)
        except Exception as error:
            outcome = _failed(batch, loaded, error)
        self._answer(batch, loaded, began, outcome)
        return True

    def _ran(
        self,
        batch: DispatchedBatch,
        loaded: Loaded,
        began: float,
        outcome: answers.Outcome | None,
        error: BaseException | None,
    ) -> None:
        self._busy, self.busy_until = False, 0.0
        try:
            self._answer(batch, loaded, began, outcome if error is None else _failed(batch, loaded, error))
        except Exception as fault:
            return self._fail(fault)
        self._step()

    def _answer(self, batch: DispatchedBatch, loaded: Loaded, began: float, outcome: answers.Outcome) -> None:
        queue_s = began - batch.arrived
        self._replies.answer(batch, loaded, outcome, queue_s, time.monotonic() - began, self._watchdog.stopped_after_s)
        _, failed, run_s = outcome
        ended = time.monotonic()
        self._accounts.ran(
            Entry(
                loaded,
                batch.rows,
                len(batch.ids),
                len(failed),
                queue_s,
                run_s,
                ended - began,
                ended,
                batch.extent,
            )
        )
        if loaded.wants_batch and len(batch.ids) > 1:
            lull_checks.keep(loaded, batch)

    # --- exclusive work ---------------------------------------------------------------------------------------------

    def exclusive(
        self,
        kind: WorkKind,
        call: Callable[[], Any],
        expected_s: float = 0.0,
        limit_s: float = math.inf,
        variant: int = 0,
    ) -> asyncio.Future:
        """Run a call in the device's thread when it is due; the future has its outcome.

        Args:
            limit_s: seconds after which the watchdog terminates it; the future then raises
                :class:`~.runtime.RunStopped`. Cancelling the future terminates it, too.
            variant: id of the variant that it runs; 0 for none.
        """
        future = self._loop.create_future()
        request = ExclusiveRequest(kind, call, future, expected_s, limit_s, variant, time.monotonic())
        future.add_done_callback(functools.partial(self._cancelled, request))
        self._exclusive.add(request)
        if request.long_plan_work:
            self._on_change()
        self.wake()
        return request.future

    def _cancelled(self, request: ExclusiveRequest, future: asyncio.Future) -> None:
        if future.cancelled() and request is self._request:
            self._watchdog.terminate()

    def _begin(self, request: ExclusiveRequest) -> None:
        started = time.monotonic()
        self._busy, self.busy_until = True, started + request.expected_s
        self._request = request
        call = (request.limit_s, request.variant, request.call, ())
        self._thread.call(self._watchdog.call, call, functools.partial(self._done, request, started))
        if request.long_plan_work:
            # Again, since a core counts no other work while a batch of its own is there.
            self._on_change()

    def _done(self, request: ExclusiveRequest, started: float, outcome: Any, error: BaseException | None) -> None:
        self._busy, self.busy_until, self._request = False, 0.0, None
        if self._watchdog.stopped_after_s and isinstance(error, RunError):
            error = RunStopped(f"took longer than {self._watchdog.stopped_after_s:g} s and was stopped")
        if request.future.done():
            if error is not None and not isinstance(error, RunError):
                _log.error("cancelled_work_failed", kind=request.kind, error=str(error))
        elif error is not None:
            request.future.set_exception(error)
        else:
            request.future.set_result(outcome)
        if request.kind is WorkKind.MEASURE:
            now = time.monotonic()
            self._accounts.profiled(now - started)
            self._exclusive.measured(now, now - started)
        elif request.long_plan_work:
            self._on_change()
        # The caller goes on first, so that its next request can be weighed against the next batch.
        self.wake()


def _failed(batch: DispatchedBatch, loaded: Loaded, error: BaseException) -> answers.Outcome:
    """Build the outcome of a batch that failed internally.

    Errors of the model are answers. This one's message may quote any query of the batch: nobody gets it.
    """
    name, frames = type(error).__name__, "".join(traceback.format_tb(error.__traceback__))
    _log.error("batch_failed", variant=loaded.variant.name, error=name, exception=frames)
    text = f"internal error: {name}"
    return [], [(place, text) for place in range(len(batch.ids))], 0.0
