"""The device's time: decides what goes next, has it run and answered; one thing at a time."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from workers import log
from workers.protocol.frames import FrameConnection
from workers.protocol.run_limits import limit_s
from workers.protocol.specs import DeviceInfo

from . import answers
from .estimates import Guard, LatencyEstimate
from .exclusive import Exclusive, Kind, Request
from .forms import Forms
from .granted import Granted
from .grants import given_up
from .intake import Intake
from .lanes import Batch, Lanes
from .ledger import Ledger
from .loaded import Loaded
from .meters import Meters
from .replies import Replies
from .runtime import RunError, RunStopped
from .stats import Second
from .thread import Done, Thread
from .watchdog import Watchdog

_log = log.get("turns")
#: a FIRST run that takes longer than this hands the queue back, so that gateways can still find another device
FIRST_RUN_PATIENCE_S = 0.1
TIMER_S = 0.001
#: a batch that is expected to run no longer than this runs in the loop's own thread: to hand it to another one and back
#: takes more CPU time than such a batch does
HERE_S = 0.0002
#: the same on a device of one core, where the loop could do nothing else meanwhile but take that core from the model
HERE_ONE_CORE_S = 0.01
#: the watchdog's limit for a batch in the loop's own thread: while it runs the process answers nobody, and its
#: supervisor waits for :attr:`.backoff.RestartTiming.silent`
HERE_MOST_S = 3.0
#: a run is overdue this many seconds after its expected end
OVERDUE_S = 0.1
#: batches that came in one piece may run as they are read until the first of them began so long ago: then the loop
#: reads its clock and its other sockets
AT_ONCE_S = 0.0005
#: a guard that leaves no policy any time to wait on purpose
HURRY_S = 1e6
_LATE = "cannot be answered in time here"


class Turns:
    """Everything that runs on the device goes through here.

    Models run in one thread of their own (``session.run`` releases the GIL), so the event loop goes on answering; but
    for those that are over in a moment (:data:`HERE_S`).

    Args:
        forms: by name, those of each application that is on this device now.
        hurried: whether no policy should wait for company now.
        reopened: called when queries are taken again that were not during a first run.
        watchdog: limits every run.
        stopped: called with a variant's id and name and the limit in seconds when a run exceeded it.
    """

    def __init__(
        self,
        info: DeviceInfo,
        lanes: Lanes,
        intake: Intake,
        replies: Replies,
        ledger: Ledger,
        guard: Guard,
        meters: Meters,
        second: Second,
        profile_share: float,
        clock: Callable[[], float],
        forms: Mapping[str, Forms],
        hurried: Callable[[], bool],
        reopened: Callable[[], None],
        watchdog: Watchdog,
        stopped: Callable[[int, str, float], None],
    ):
        self._here_s = 0.0
        if info.kind == "cpu":
            self._here_s = HERE_ONE_CORE_S if len(info.cores) == 1 else HERE_S
        self._lanes = lanes
        self._intake = intake
        self._replies = replies
        self._ledger = ledger
        self._guard = guard
        self._meters = meters
        self._second = second
        self._clock = clock
        self._hurried = hurried
        self._reopened = reopened
        self._watchdog = watchdog
        self._stopped = stopped
        self._forms = forms
        self._loop = asyncio.get_running_loop()
        self._thread = Thread("device", self._loop)
        self._exclusive = Exclusive(profile_share)
        #: whether a batch or a request has the device, in its thread
        self._held = False
        self._request: Request | None = None
        #: whether the loop is about to look what goes next; when it will if nothing happens before; and by how much
        #: later than that it did
        self._looking = False
        self._timer: asyncio.TimerHandle | None = None
        self._until = math.inf
        self._overslept_s = 0.0
        #: connection and number of the read that the last batch came with which ran as it came, and when the first one
        #: of that read began
        self._read: tuple[FrameConnection, int] | None = None
        self._read_began = 0.0
        self._over: asyncio.Future[None] = self._loop.create_future()
        self.busy_until = 0.0
        self.stopping = False

    async def run(self) -> None:
        """Returns once :attr:`stopping` is set and nothing waits any more.

        Raises:
            Exception: a fault of ours; nothing runs after it.
        """
        self.wake()
        await self._over

    def wake(self) -> None:
        """Something may go next that did not before."""
        if not self._looking and not self._held:
            self._looking = True
            self._loop.call_soon(self._look)

    def exclusive(
        self,
        kind: Kind,
        call: Callable[[], Any],
        expected_s: float = 0.0,
        patience_s: float = 0.0,
        limit_s: float = math.inf,
        variant: int = 0,
    ) -> asyncio.Future:
        """Run a call in the device's thread when it is due; the future has its outcome.

        Args:
            patience_s: how long a FIRST run waits for empty queues.
            limit_s: after so many seconds the watchdog terminates it; the future then raises
                :class:`~.runtime.RunStopped`. Cancelling the future terminates it, too.
            variant: id of the variant that it runs; 0 for none.
        """
        latest = self._clock() + patience_s
        request = Request(kind, call, self._loop.create_future(), expected_s, latest, limit_s, variant)
        request.future.add_done_callback(functools.partial(self._cancelled, request))
        self._exclusive.add(request)
        self.wake()
        return request.future

    def _cancelled(self, request: Request, future: asyncio.Future) -> None:
        if future.cancelled() and request is self._request:
            self._watchdog.terminate()

    def busy_s(self, now: float) -> float:
        """Seconds until the device is free, as expected. A run that is overdue is expected to take as long again as it
        is overdue."""
        return abs(self.busy_until - now) if self._held else 0.0

    def overdue(self, now: float) -> bool:
        """Whether what runs should have ended by now."""
        return self._held and now > self.busy_until + OVERDUE_S

    def at_once(self, granted: Granted, loaded: Loaded) -> bool:
        """Start a batch that arrives while nothing else waits, if the device is idle; False: it has to be queued."""
        if self._held or self._looking or self._exclusive.requests:
            return False
        now, read = granted.arrived, (granted.connection, granted.connection.reads)
        if read != self._read:
            self._read, self._read_began = read, time.perf_counter()
        elif time.perf_counter() - self._read_began > AT_ONCE_S:
            return False
        try:
            late = given_up(granted, loaded, now)
            if late:
                self._intake.refuse_all(late, "late", _LATE)
            if granted.rows:
                self._overslept_s = 0.0
                if self._lanes.contended:
                    self._lanes.forget_waits(now)
                self._run_granted(granted, loaded, now)
        except Exception as error:
            self._fail(error)
        return True

    def close(self) -> None:
        """Let the thread go."""
        self._thread.close()

    # --- what goes next ---------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._looking = False
        if self._held or self._over.done():
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock()
        self._overslept_s = max(0.0, now - self._until)
        self._until = math.inf
        try:
            self._next()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self._over.done():
            self._over.set_exception(error)

    def _next(self) -> None:
        self._ledger.settle()
        while True:
            now = self._clock()
            request = self._exclusive.before_batches(now, self._lanes.rows)
            if request is not None:
                return self._take(request)
            guard_s = HURRY_S if self.stopping or self._hurried() else self._guard.seconds
            step = self._lanes.decide(now, self._exclusive.may_hold(), guard_s)
            if step.late:
                # Given up on after waking late: the next deliberate wait must end that much earlier.
                self._guard.observe(self._overslept_s)
                self._intake.refuse_all(step.late, "late", _LATE)
            if step.granted is not None or step.batch is not None:
                if step.granted is not None:
                    over = self._run_granted(step.granted, self._lanes.serving(step.granted), now)
                else:
                    over = self._run_lane(step.batch, now)
                if over:
                    # Nothing was waited for: what arrived meanwhile is read before the next batch is chosen.
                    self.wake()
                return
            if self.stopping and not self._lanes.rows:
                return self._over.set_result(None)
            if step.late:
                continue
            slos = [forms.application.slo_s for forms in self._forms.values()]
            request, until = self._exclusive.instead_of_idling(
                now, step.wait_until, self._intake.last_arrival, min(slos, default=1.0)
            )
            if request is not None:
                return self._take(request)
            return self._sleep(until)

    def _sleep(self, until: float) -> None:
        self._until = until
        if until < math.inf:
            # The loop's timers count whole milliseconds: shorter waits would spin on the core that models run on. The
            # guard makes up for waking late.
            self._timer = self._loop.call_later(max(until - self._clock(), TIMER_S), self._look)

    # --- a batch ----------------------------------------------------------------------------------------------------

    def _run_granted(self, granted: Granted, loaded: Loaded, now: float) -> bool:
        """Have a batch run; whether it is over already."""
        loaded.used_at = now
        # The loop's clock counts whole milliseconds, which is too coarse to learn a device's pace from.
        began = time.perf_counter()
        estimate = loaded.at(granted.extent)
        expected_s = _expected_s(estimate, granted.rows)
        most_s = limit_s(expected_s, loaded.application.slo_s)
        given = (loaded.model, granted)
        if expected_s > self._here_s:
            over = functools.partial(self._granted_ran, granted, loaded, now, began)
            call = (most_s, loaded.id, answers.of_granted, given)
            self._hold(estimate, granted.rows, now, self._watchdog.call, call, over)
            return False
        try:
            outcome = self._watchdog.call(min(most_s, HERE_MOST_S), loaded.id, answers.of_granted, given)
        except Exception as error:
            outcome = _granted_failed(granted, loaded, error)
        self._granted_over(granted, loaded, now, began, outcome)
        return True

    def _granted_ran(
        self,
        granted: Granted,
        loaded: Loaded,
        decided: float,
        began: float,
        outcome: answers.Outcome | None,
        error: BaseException | None,
    ) -> None:
        if error is not None:
            outcome = _granted_failed(granted, loaded, error)
        self._granted_over(granted, loaded, decided, began, outcome)

    def _granted_over(
        self, granted: Granted, loaded: Loaded, decided: float, began: float, outcome: answers.Outcome
    ) -> None:
        """Answer a batch that ran, and write down what it did."""
        waited_s, clock = decided - granted.arrived, time.perf_counter
        stopped_s = self._watchdog.stopped_after_s
        self._replies.of_granted(granted, loaded, outcome, waited_s, clock() - began, stopped_s)
        if stopped_s:
            self._stopped(loaded.id, loaded.variant.name, stopped_s)
        _, failed, run_s = outcome
        entry = (
            loaded,
            granted.rows,
            len(granted.ids),
            len(failed),
            waited_s,
            run_s,
            clock() - began,
            self._overslept_s,
            self._clock(),
            granted.extent,
        )
        self._overslept_s = 0.0
        self._ledger.note(entry)

    def _run_lane(self, batch: Batch, now: float) -> bool:
        """As :meth:`_run_granted`."""
        loaded = batch.loaded
        self._intake.started(batch.queries)
        loaded.used_at = now
        began = time.perf_counter()
        work, given = answers.of_queries, (loaded.model, batch.queries, batch.limit)
        over = functools.partial(self._lane_over, batch, now, began)
        estimate = loaded.at(batch.extent)
        expected_s = _expected_s(estimate, batch.rows)
        most_s = limit_s(expected_s, loaded.application.slo_s)
        if expected_s > self._here_s:
            call = (most_s, loaded.id, work, given)
            self._hold(estimate, batch.rows, now, self._watchdog.call, call, over)
            return False
        try:
            outcome = self._watchdog.call(min(most_s, HERE_MOST_S), loaded.id, work, given)
        except Exception as error:
            over(None, error)
        else:
            over(outcome, None)
        return True

    def _lane_over(
        self, batch: Batch, decided: float, began: float, outcome: tuple | None, error: BaseException | None
    ) -> None:
        if error is not None:
            text = _fault(batch.loaded, error)
            outcome = [answers.Answer(place, error=text) for place in range(len(batch.queries))], 0.0
        done, run_s = outcome
        overslept_s, self._overslept_s = self._overslept_s, 0.0
        stopped_s = self._watchdog.stopped_after_s
        self._replies.of_queries(batch, done, decided, run_s, time.perf_counter() - began, stopped_s)
        if stopped_s:
            self._stopped(batch.loaded.id, batch.loaded.variant.name, stopped_s)
        failed = any(answer.error is not None for answer in done)
        self._ledger.lane(batch, failed, run_s, time.perf_counter() - began, overslept_s, self._clock())

    def _hold(
        self, estimate: LatencyEstimate, rows: int, now: float, work: Callable[..., Any], given: tuple, over: Done
    ) -> None:
        """Give a batch to the device's thread; ``over`` is called with what became of it."""
        self._held, self.busy_until = True, now + estimate.model(now).seconds(rows)
        self._thread.call(work, given, functools.partial(self._let_go, over))

    def _let_go(self, over: Done, outcome: tuple | None, error: BaseException | None) -> None:
        self._held, self.busy_until = False, 0.0
        try:
            over(outcome, error)
        except Exception as fault:
            return self._fail(fault)
        self._look()

    # --- a request --------------------------------------------------------------------------------------------------

    def _take(self, request: Request) -> None:
        started = self._clock()
        self._held, self.busy_until = True, started + request.expected_s
        self._request = request
        patience = None
        if request.kind is Kind.FIRST:
            patience = self._loop.call_later(FIRST_RUN_PATIENCE_S, self._first_run_takes_long)
        call = (request.limit_s, request.variant, request.call, ())
        self._thread.call(self._watchdog.call, call, functools.partial(self._done, request, started, patience))

    def _first_run_takes_long(self) -> None:
        self._intake.closed = "a new variant has its first run on this device"
        self._intake.hand_back("draining", self._intake.closed)

    def _done(
        self,
        request: Request,
        started: float,
        patience: asyncio.TimerHandle | None,
        outcome: Any,
        error: BaseException | None,
    ) -> None:
        self._held, self.busy_until, self._request = False, 0.0, None
        if self._watchdog.stopped_after_s and isinstance(error, RunError):
            error = RunStopped(f"took longer than {self._watchdog.stopped_after_s:g} s and was stopped")
        if patience is not None:
            patience.cancel()
            if self._intake.closed and not self.stopping:
                self._intake.closed = ""
                # Who ordered the run may have given it up long ago, and nobody sends what could be refused.
                self._reopened()
        if request.future.done():
            if error is not None and not isinstance(error, RunError):
                _log.error("work nobody waits for failed", kind=request.kind, error=str(error))
        elif error is not None:
            request.future.set_exception(error)
        else:
            request.future.set_result(outcome)
        took = self._clock() - started
        if request.kind is not Kind.PLAN:
            self._second.profiled(took)
            self._meters.profiled(took)
        if request.kind is Kind.MEASURE:
            self._exclusive.measured(self._clock(), took)
        # Whoever asked goes on first, so that its next request can be weighed against the next batch.
        self.wake()


def _expected_s(estimate: LatencyEstimate, rows: int) -> float:
    """The run time that decides whether a batch runs in the loop's own thread. On a GPU none does: a run that hangs
    there must not keep this process from answering."""
    return estimate.profiled.seconds(rows) * (estimate.ratio if estimate.ratio > 1.0 else 1.0)


def _granted_failed(granted: Granted, loaded: Loaded, error: BaseException) -> answers.Outcome:
    text = _fault(loaded, error)
    return [], [(place, text) for place in range(len(granted.ids))], 0.0


def _fault(loaded: Loaded, error: BaseException) -> str:
    """What a batch's queries are told that a fault of ours has cost: not the model's own errors, those are answers.
    Other batches must not pay for it."""
    _log.error("batch failed", variant=loaded.variant.name, exc_info=error)
    return str(error) or type(error).__name__
