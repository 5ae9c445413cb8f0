"""A device of a published stack, with its queues, and how long its options take there. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from ..binding import QueryClass, ServiceTerms, WaitingQuery
from ..feedback import DECAY_AFTER_S, decay_corrections, learn
from ..latency import LatencyModel
from ..latency_correction import LatencyCorrections
from ..options import INF, OptionSet, ServingOption
from ..policy_tables import PolicySet
from .load_monitor import LoadMonitor
from .policy import BatchPolicy, Decision
from .queues import ApplicationQueue, CandidateSet, QueuedQuery

#: of INFaaS (Section 4, Figure 4): least capacity over load, with less of which an instance is overloaded (its
#: slack-threshold, Section 5); observed over profiled run time from which it is interfered (its published code's for
#: CPUs; 5 for GPUs, where its latencies contain the wait for others)
SLACK = 1.05
SLOWER = 1.5
#: seconds that a device's load is averaged over: INFaaS' monitoring daemons report every 2 s (Section 5)
STATE_S = 2.0
#: latencies are corrected in steps of this part: few models are made, and none for a device that keeps its times
STEP = 0.05


@dataclass(slots=True, eq=False)
class QueueBatch:
    """``rows_sent``: as dispatched, whatever the caller does to ``rows``."""

    device: QueuedDevice
    queue: ApplicationQueue
    option: ServingOption
    queries: list[WaitingQuery]
    rows: int
    rows_sent: int
    dispatched_at: float
    end: float

    @property
    def device_name(self) -> Hashable:
        return self.device.name

    @property
    def application_name(self) -> str:
        return self.queue.application


class QueuedDevice:
    """A device with its queues, which runs one batch at a time.

    The next batch is sent so early that the device need not wait.

    Args:
        slack_s: how late the caller's timers may wake it.
    Attributes:
        away: others' work holds it until ``busy_until``.
        dispatched: the batch in flight, and the next one where that had to be sent before the first's answer.
        free_at: when the next one should be sent, as expected.
        rates: rows/s that the plan expects of it, by application that it offers.
        backoff_until: it declined queries, and gets none until then.
        wake_at: when it is to be asked again.
    """

    def __init__(
        self,
        name: Hashable,
        create_policy: Callable[[], BatchPolicy],
        slack_s: float,
        loads: Callable[[str], LoadMonitor],
    ) -> None:
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
        self._loads = loads
        #: seconds at peak throughput that its batches were worth
        self._peak = LoadMonitor(STATE_S, STATE_S)
        self._options: dict[QueryClass, tuple[ServingOption, ...]] = {}
        self._policies: dict[QueryClass, PolicySet | None] = {}
        #: by application: the first planned option of the size class with the longest runs
        self._usual: dict[str, ServingOption] = {}
        #: steps of correction by option; by these and the options: latencies and choices
        self._levels: dict[ServingOption, int] = {}
        self._latencies: dict[ServingOption, LatencyModel] = {}
        self._choices: dict[QueryClass, CandidateSet] = {}

    def open_at(self) -> float:
        if not self.up or self.away:
            return INF
        if self.dispatched:
            return self.free_at if self.rtt_s and len(self.dispatched) == 1 else INF
        return self.backoff_until

    def options(self, query_class: QueryClass) -> list[ServingOption]:
        application, size, permitted = query_class
        offered = self._options.get(QueryClass(application, size)) or self._options.get(QueryClass(application)) or ()
        return [option for option in offered if permitted is None or option.variant in permitted]

    # --- changes -----------------------------------------------------------------------------------------------------

    def offer(
        self, option_sets: Mapping[QueryClass, OptionSet], applications: Mapping[str, ServiceTerms]
    ) -> list[QueuedQuery] | None:
        """Queries that it can no longer run, taken out; None: the options are the same."""
        offered = {name: options.all_options for name, options in option_sets.items()}
        policies = {name: options.policies for name, options in option_sets.items()}
        if offered == self._options:
            if policies != self._policies:
                self._policies = policies
                self._choices.clear()
            return None
        self._options, self._policies = offered, policies
        kept = [option for options in offered.values() for option in options]
        self.corrections.keep(kept)
        self._levels = {option: self._level(option) for option in kept}
        return self.arrange(applications)

    def arrange(self, applications: Mapping[str, ServiceTerms]) -> list[QueuedQuery]:
        """Make a queue for each application; the queries of others, taken out.

        This is due after a change of options or applications.
        """
        self._reset()
        self.rates = {}
        for name in dict.fromkeys([query_class.application for query_class in self._options]):
            if name in applications:
                sizes = [size for other, size, _ in self._options if other == name]
                options = self._options[QueryClass(name, max(sizes, key=lambda size: size or INF))]
                planned = [option for option in options if option.planned]
                self._usual[name] = (planned or options)[0]
                self.rates[name] = sum([option.rate for option in planned])
        stranded: list[QueuedQuery] = []
        for key, queue in list(self.queues.items()):
            application, permitted = key
            if application in self.rates:
                queue.terms = applications[application]
                classes = {part: QueryClass(application, part.size, permitted) for part in queue.parts}
                stranded += queue.clear([part for part, name in classes.items() if not self.options(name)])
            else:
                stranded += queue.clear()
            if application not in self.rates or (permitted is not None and not queue.parts):
                del self.queues[key]
        for name in self.rates:
            self._queue(name, None, applications[name])
        return stranded

    def _queue(self, application: str, permitted: frozenset[Hashable] | None, terms: ServiceTerms) -> ApplicationQueue:
        queue = self.queues.get((application, permitted))
        if queue is None:
            queue = ApplicationQueue(application, permitted, self._create_policy(), terms, self._loads(application))
            self.queues[application, permitted] = queue
        return queue

    def add(self, query: WaitingQuery, terms: ServiceTerms) -> None:
        application, _, permitted = query.query_class
        queue = self._queue(application, permitted, terms)
        query.reservation = queued = QueuedQuery(query, self.rtt_s, queue)
        queue.add(queued)

    def clear(self, application: str | None = None) -> list[QueuedQuery]:
        queues = [queue for (name, _), queue in self.queues.items() if application in (None, name)]
        return [queued for queue in queues for queued in queue.clear()]

    # --- decisions ---------------------------------------------------------------------------------------------------

    def decide(self, now: float) -> tuple[QueueBatch | None, list[QueuedQuery], float]:
        """The batch to send or None, queries dropped and taken out, when to ask again."""
        if now >= self.decay_at:
            decay_corrections(self, now)
        waiting = [queue for queue in self.queues.values() if queue.parts]
        # Where queries of several queues wait, none waits on purpose.
        slack_s = self._slack_s if len(waiting) == 1 else INF
        decisions = [(queue, queue.decide(now, slack_s, self._choose)) for queue in waiting]
        # Queues take turns: an overloaded one does not keep the device.
        first = min(
            [queue for queue, decision in decisions if decision.run], key=lambda queue: queue.ran_at, default=None
        )
        batch, dropped, wake_at = None, [], INF
        for queue, decision in decisions:
            queue.take(decision.drop)
            dropped += decision.drop
            if queue is first:
                batch = self._start(queue, decision, now)
            else:
                wake_at = min(wake_at, decision.wait_until)
        return batch, dropped, wake_at

    def _start(self, queue: ApplicationQueue, decision: Decision, now: float) -> QueueBatch:
        option = self._choose(queue, decision.run[0].batch_key.size).options[decision.candidate.variant]
        queue.take(decision.run)
        queries = [queued.query for queued in decision.run]
        rows = sum([query.rows for query in queries])
        seconds = option.seconds(rows)
        end = now + self.rtt_s + seconds * self.corrections[option]
        batch = QueueBatch(self, queue, option, queries, rows, rows, now, end)
        for query in queries:
            query.reservation = batch
        self.dispatched.append(batch)
        queue.ran_at = now
        self._peak.add(rows * option.bound.seconds(option.slice_rows) / option.slice_rows, now)
        self.free_at = now + self._occupied_s(option, rows, seconds)
        return batch

    def _occupied_s(self, option: ServingOption, rows: int, seconds: float) -> float:
        transfer_s = option.row_transfer_s * rows
        return max(seconds * self.corrections.scale.mean - transfer_s, transfer_s)

    def ended(self, batch: QueueBatch, now: float, run_s: float | None) -> None:
        self.dispatched.remove(batch)
        if self.dispatched:
            following = self.dispatched[0]
            seconds = following.option.seconds(following.rows_sent)
            transfer_s = following.option.row_transfer_s * following.rows_sent
            began = max(now, following.dispatched_at + self.rtt_s + transfer_s)
            following.end = began + seconds * self.corrections[following.option] - transfer_s
            self.free_at = (
                began - self.rtt_s - transfer_s + self._occupied_s(following.option, following.rows_sent, seconds)
            )
        if run_s is None:
            return
        for query in batch.queries:
            # Otherwise each batch would be a circle of references.
            query.reservation = None
        self.backoff_s, self.backoff_until = 0.0, -INF
        batch.queue.policy.observe(batch.rows_sent, sum([query.deadline < now for query in batch.queries]))
        learn(self, batch.option, batch.rows_sent, run_s, now)

    def rows_here(self) -> int:
        rows = 0
        for queue in self.queues.values():
            rows += queue.rows
        for batch in self.dispatched:
            rows += batch.rows_sent
        return rows

    def active(self, now: float) -> bool:
        """Whether its instance is active, as INFaaS says: neither overloaded nor interfered."""
        # One that was left alone for a while is tried again: nothing else would show that it recovered.
        recent = now - self.measured_at <= DECAY_AFTER_S
        interfered = recent and self.corrections.common.mean > SLOWER
        return self._peak.rate(now) * SLACK <= 1.0 and not interfered

    def work_s(self, now: float, application: str = "", rows: int = 0) -> float:
        """Seconds of work that the device has, with ``rows`` more of an application."""
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
            seconds, most = self._latency(option).seconds, option.slice_rows
            busy_s += count // most * seconds(most) + seconds(count % most)
        return busy_s

    # --- latencies and what follows from them ------------------------------------------------------------------------

    def recount(self) -> None:
        levels = {option: self._level(option) for option in self._levels}
        if levels != self._levels:
            self._levels = levels
            self._reset()

    def _level(self, option: ServingOption) -> int:
        return int((self.corrections[option] - 1.0) / STEP)

    def _reset(self) -> None:
        self._latencies.clear()
        self._choices.clear()

    def _latency(self, option: ServingOption) -> LatencyModel:
        level = self._levels[option]
        if not level:
            return option.bound
        model = self._latencies.get(option)
        if model is None:
            bound, typical, factor = option.bound.seconds, option.latency.seconds, 1.0 + level * STEP
            rows = range(1, option.latency.largest + 1)
            model = self._latencies[option] = LatencyModel([(n, max(bound(n), factor * typical(n))) for n in rows])
        return model

    def _choose(self, queue: ApplicationQueue, size: int) -> CandidateSet:
        query_class = QueryClass(queue.application, size, queue.permitted)
        choice = self._choices.get(query_class)
        if choice is None:
            restricted = queue.permitted is not None
            policies = self._policies.get(QueryClass(queue.application, size)) or self._policies.get(
                QueryClass(queue.application)
            )
            choice = CandidateSet(self.options(query_class), restricted, self._latency, policies)
            self._choices[query_class] = choice
        return choice
