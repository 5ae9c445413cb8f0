"""The queues of a device, whose turn it is there, and how long its options take. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping

from workers.batching import turns
from workers.batching.base import BatchPolicy, Outcome
from workers.batching.latency import LatencyModel

from ..binding import QueryClass, ServiceTerms, WaitingQuery
from ..feedback import decay_corrections, learn
from ..latency_correction import LatencyCorrections
from ..options import INF, OptionSet, ServingOption
from .queues import ApplicationQueue, Ask, Candidates, QueuedQuery

#: latencies are corrected in steps of this part, so that few models are made and a device that keeps its times is
#: not corrected at all
STEP = 0.05


class QueueBatch:
    """Queries of a ``queue`` that were taken out of it to run together on a ``device``; see :class:`.Dispatch`."""

    __slots__ = (
        "application_name",
        "device",
        "device_name",
        "dispatched_at",
        "end",
        "option",
        "queries",
        "queue",
        "rows",
        "rows_sent",
    )

    def __init__(
        self,
        device: QueuedDevice,
        queue: ApplicationQueue,
        option: ServingOption,
        queued: Iterable[QueuedQuery],
        now: float,
    ) -> None:
        self.device = device
        self.device_name = device.name
        self.application_name = queue.application
        self.queue = queue
        self.option = option
        self.queries = [one.query for one in queued]
        #: as dispatched, whatever the caller does to ``rows``
        self.rows = self.rows_sent = sum([query.rows for query in self.queries])
        self.dispatched_at = now
        self.end = now + device.rtt_s + option.seconds(self.rows) * device.corrections[option]
        for query in self.queries:
            query.reservation = self


class QueuedDevice:
    """A device with its queues. It runs one batch at a time, and the next one is sent so early that it need not wait.

    Args:
        create_policy: makes a batch policy for a queue.
        slack_s: how late the caller's timers may wake it.

    Attributes:
        up: takes batches.
        away: others' work holds it until ``busy_until``.
        dispatched: the batch under way, if any, and the next one where it had to be sent before the first's answer.
        free_at: when the next one should be sent, as expected.
        rates: rows/s that the plan expects of it, by application that it offers.
        backoff_until: it declined queries, and is left alone so long.
        wake_at: when it is to be asked again.
    """

    def __init__(self, name: Hashable, create_policy: Callable[[], BatchPolicy], slack_s: float) -> None:
        self.name = name
        self.up = False
        self.away = False
        self.busy_until = self.free_at = -INF
        self.rtt_s = 0.0
        self.dispatched: list[QueueBatch] = []
        self.rates: dict[str, float] = {}
        self.queues: dict[tuple[str, frozenset[Hashable] | None], ApplicationQueue] = {}
        self.wake_at = INF
        self.corrections = LatencyCorrections()
        self.measured_at = self.decay_at = self.backoff_until = -INF
        self.backoff_s = 0.0
        self._create_policy = create_policy
        self._slack_s = slack_s
        self._arbiter = turns.Arbiter()
        #: the queue whose turn it is
        self._turn: str | None = None
        self._options: dict[QueryClass, tuple[ServingOption, ...]] = {}
        self._offer: dict[QueryClass, list[tuple]] = {}
        self._levels: dict[ServingOption, int] = {}
        self._corrected: dict[tuple[ServingOption, int], LatencyModel] = {}
        self._blocking: dict[str, float] | None = None
        #: by application: the size class with the longest runs, and its first planned option
        self._largest: dict[str, int] = {}
        self._usual: dict[str, ServingOption] = {}

    def open_at(self) -> float:
        """From when on a batch may be sent; inf: not before something happens."""
        if not self.up or self.away:
            return INF
        if self.dispatched:
            return self.free_at if self.rtt_s and len(self.dispatched) == 1 else INF
        return self.backoff_until

    def options(self, query_class: QueryClass) -> list[ServingOption]:
        """The options that may answer queries of a class."""
        application, size, permitted = query_class
        some = self._options.get(QueryClass(application, size)) or self._options.get(QueryClass(application)) or ()
        return [option for option in some if permitted is None or option.variant in permitted]

    # --- changes -----------------------------------------------------------------------------------------------------

    def offer(
        self, menus: Mapping[QueryClass, OptionSet], applications: Mapping[str, ServiceTerms]
    ) -> list[QueuedQuery] | None:
        """Take over what the device can run. Returns the queries that it cannot run any more, taken out; None where
        nothing has changed."""
        offer = {
            name: [
                (o.variant, o.accuracy, o.planned, o.rate, o.turn_rows, o.bound, o.latency_key)
                for o in menu.all_options
            ]
            for name, menu in menus.items()
        }
        if offer == self._offer:
            return None
        self._offer = offer
        self._options = {name: tuple(menu.all_options) for name, menu in menus.items()}
        kept = [option for options in self._options.values() for option in options]
        self.corrections.keep(kept)
        self._levels = {option: self._level(option) for option in kept}
        self._corrected.clear()
        return self.arrange(applications)

    def arrange(self, applications: Mapping[str, ServiceTerms]) -> list[QueuedQuery]:
        """After a change of options or applications: a queue for each application that is offered. Returns the queries
        of those that are not, taken out."""
        sizes: dict[str, set[int]] = {}
        for name, size, _ in self._options:
            if name in applications:
                sizes.setdefault(name, set()).add(size)
        self._largest = {name: 0 if 0 in some else max(some) for name, some in sizes.items()}
        self.rates = {
            name: sum([option.rate for option in self._options[QueryClass(name, size)] if option.planned])
            for name, size in self._largest.items()
        }
        for name, size in self._largest.items():
            options = self._options[QueryClass(name, size)]
            self._usual[name] = next((option for option in options if option.planned), options[0])
        stranded: list[QueuedQuery] = []
        for key, queue in list(self.queues.items()):
            application, permitted = key
            queue.choices.clear()
            queue.served.clear()
            if application in self.rates:
                queue.terms = applications[application]
                lost = [form for form in queue.parts if not self.options(QueryClass(application, form[0], permitted))]
                stranded += [queued for form in lost for queued in queue.clear(form)]
            else:
                stranded += queue.clear()
            if application not in self.rates or (permitted is not None and not queue.parts):
                del self.queues[key]
                self._arbiter.forget(queue.name)
        for name in self.rates:
            self._queue(name, None, applications[name])
        self._blocking = None
        return stranded

    def _queue(self, application: str, permitted: frozenset[Hashable] | None, terms: ServiceTerms) -> ApplicationQueue:
        queue = self.queues.get((application, permitted))
        if queue is None:
            queue = ApplicationQueue(application, permitted, self._create_policy(), terms)
            self.queues[application, permitted] = queue
            self._blocking = None
        return queue

    def add(self, query: WaitingQuery, terms: ServiceTerms) -> None:
        """Queue a query that the device has options for."""
        application, _, permitted = query.query_class
        queue = self.queues.get((application, permitted)) or self._queue(application, permitted, terms)
        query.reservation = queued = QueuedQuery(query, self, queue)
        queue.add(queued)

    def clear(self) -> list[QueuedQuery]:
        """Take all queries out that wait."""
        return [queued for queue in self.queues.values() for queued in queue.clear()]

    # --- decisions ---------------------------------------------------------------------------------------------------

    def decide(self, now: float) -> tuple[QueueBatch | None, list[QueuedQuery], float]:
        """What an open device does now: the batch to send, the queries that its policies drop, taken out, and when to
        ask again if nothing happens before (inf: only then)."""
        self._end_turn(now)
        if now >= self.decay_at:
            decay_corrections(self, now)
        if len(self.queues) == 1:
            # A queue without a rival gets every turn that it wants.
            (queue,) = self.queues.values()
            if not queue.parts:
                return None, [], INF
            ask = queue.ask(now, (self._blocking or self._block())[queue.name], self._choose)
            dropped = _take_drops(queue, ask)
            if ask.decision.run:
                return self._start(queue, ask, now), dropped, INF
            return None, dropped, ask.decision.wait_until
        waiting = [queue for queue in self.queues.values() if queue.parts]
        if not waiting:
            return None, [], INF
        blocking = self._blocking or self._block()
        asks = {queue.name: queue.ask(now, blocking.get(queue.name, self._slack_s), self._choose) for queue in waiting}
        wishes = [turns.Wish.of(name, ask.decision, ask.part, ask.choice.latencies, now) for name, ask in asks.items()]
        turn = self._arbiter.choose(wishes, now)
        dropped = [queued for queue in waiting for queued in _take_drops(queue, asks[queue.name])]
        for queue in waiting:
            if queue.name == turn.lane:
                return self._start(queue, asks[queue.name], now), dropped, INF
        return None, dropped, turn.ask_at

    def _start(self, queue: ApplicationQueue, ask: Ask, now: float) -> QueueBatch:
        option = ask.choice.options[ask.decision.variant]
        batch = QueueBatch(self, queue, option, queue.take(ask.part, ask.decision.run), now)
        self.dispatched.append(batch)
        self._turn = queue.name
        self.free_at = now + option.seconds(batch.rows) * self.corrections.scale.mean
        return batch

    def _end_turn(self, now: float) -> None:
        if self._turn is not None:
            self._arbiter.ended(self._turn, now)
            self._turn = None

    def ended(self, batch: QueueBatch, now: float, run_s: float | None) -> None:
        """A batch has ended."""
        self.dispatched.remove(batch)
        queue, variant = batch.queue, batch.option.variant
        if self.dispatched:
            following = self.dispatched[0]
            seconds = following.option.seconds(following.rows_sent)
            began = max(now, following.dispatched_at + self.rtt_s)
            following.end = began + seconds * self.corrections[following.option]
            self.free_at = began - self.rtt_s + seconds * self.corrections.scale.mean
        else:
            self._end_turn(now)
        if run_s is None:
            return
        for query in batch.queries:
            # Else each batch would be a circle of references.
            query.reservation = None
        self.backoff_s, self.backoff_until = 0.0, -INF
        late = sum([query.deadline < now for query in batch.queries])
        queue.policy.observe(Outcome(variant, batch.rows_sent, run_s, len(batch.queries), late))
        queue.served[variant] = queue.served.get(variant, 0.0) + batch.rows_sent
        learn(self, batch.option, batch.rows_sent, run_s, now)

    def work_s(self, now: float, application: str = "", rows: int = 0) -> float:
        """Seconds of work that the device has, with so many rows more of an application."""
        busy_s = self.busy_until - now if self.away else 0.0
        for batch in self.dispatched:
            busy_s = max(busy_s, batch.end - now)
        busy_s = max(busy_s, 0.0)
        waiting = {application: rows} if rows else {}
        for queue in self.queues.values():
            if queue.rows:
                waiting[queue.application] = waiting.get(queue.application, 0) + queue.rows
        for name, count in waiting.items():
            option = self._usual[name]
            seconds, most = self._latency(option).seconds, option.turn_rows
            busy_s += count // most * seconds(most) + seconds(count % most)
        return busy_s

    def _choose(self, queue: ApplicationQueue, size: int) -> Candidates:
        options = self.options(QueryClass(queue.application, size, queue.permitted))
        choice = queue.choices[size] = Candidates(options, queue.permitted is not None, self._latency)
        return choice

    def _block(self) -> dict[str, float]:
        # Empty queues count too: what arrives there meanwhile may take the device first.
        lanes = []
        for queue in self.queues.values():
            size = self._largest[queue.application]
            candidates = (queue.choices.get(size) or self._choose(queue, size)).planned
            if candidates:
                lanes.append(turns.Lane.of(queue.name, candidates))
        self._blocking = turns.blocking_s(lanes, slack_s=self._slack_s)
        return self._blocking

    # --- latency -----------------------------------------------------------------------------------------------------

    def recount(self) -> None:
        """What runs take has changed (see :func:`..feedback.learn`)."""
        levels = {option: self._level(option) for option in self._levels}
        if levels != self._levels:
            self._levels = levels
            self._blocking = None
            for queue in self.queues.values():
                queue.choices.clear()

    def _level(self, option: ServingOption) -> int:
        return int((self.corrections[option] - 1.0) / STEP)

    def _latency(self, option: ServingOption) -> LatencyModel:
        """Seconds to count on: the option's bound, or what was observed here where that is more."""
        level = self._levels[option]
        if not level:
            return option.bound
        model = self._corrected.get((option, level))
        if model is None:
            bound, typical, factor = option.bound.seconds, option.latency.seconds, 1.0 + level * STEP
            rows = range(1, option.latency.largest + 1)
            points = [(n, max(bound(n), factor * typical(n))) for n in rows]
            model = self._corrected[option, level] = LatencyModel(points)
        return model


def _take_drops(queue: ApplicationQueue, ask: Ask) -> list[QueuedQuery]:
    return [queued for part, ids in ask.drops for queued in queue.take(part, ids)]
