"""The binding of published stacks. Pure.

1. A query arrives, and the router picks its device by the plan's shares (:meth:`PublishedBinding.arrived`).
2. It waits in the core, in the device's queue of its application; one that permits few variants, in a queue of its own.
3. A device that is free, or will be when a batch reaches it, asks the batch policies of its queues for decisions; of
   queues that want to run, the one that ran longest ago goes first (:meth:`.QueuedDevice.decide`).
4. The batch is dispatched; queries that a policy drops are refused. A policy that waits names the time to wake.
5. :meth:`PublishedBinding.finished` teaches the policy and the latency correction, and frees the device.
6. Queries whose device goes down, is away or loses its option, or which it declined, are routed again.

Changes of devices and options come in rounds: they take effect with the next event, for which ``wake_at`` asks at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set

from ..binding import Decisions, QueryClass, ServiceTerms, WaitingQuery
from ..feedback import back_off
from ..latency_correction import LearnedLatencies
from ..options import INF, OptionSet
from ..timers import TimerQueue
from .devices import QueueBatch, QueuedDevice
from .load_monitor import LoadMonitor
from .policy import BatchPolicy
from .queues import QueuedQuery
from .routing import Router

#: seconds by which an event loop's timers may be late: they are rounded up to a millisecond and wait for the callback
#: under way. A query that waits until its last moment must not be late by that
TIMER_SLACK_S = 0.002


class PublishedBinding:
    """Implements :class:`..binding.Binding`.

    Args:
        create_policy: makes the batch policy of a queue, of which each device has one by application.
        slack_s: how late the caller may call :meth:`wake`; 0 under a virtual clock.
    """

    def __init__(
        self, router: Router, create_policy: Callable[[], BatchPolicy], slack_s: float = TIMER_SLACK_S
    ) -> None:
        self._router = router
        self._create_policy = create_policy
        self._slack_s = slack_s
        self._applications: Mapping[str, ServiceTerms] = {}
        self._devices: dict[Hashable, QueuedDevice] = {}
        self._loads: dict[str, LoadMonitor] = {}
        self._timers = TimerQueue()
        #: by class: the devices where the plan has an option for it, and all that have one
        self._able: dict[QueryClass, tuple[set[Hashable], set[Hashable]]] = {}
        #: devices that changed, and queries to be routed again, with the device that cannot answer them
        self._changed: dict[QueuedDevice, None] = {}
        self._unrouted: list[tuple[WaitingQuery, QueuedDevice | None]] = []
        self._dispatches: list[QueueBatch] = []
        self._refusals: list[WaitingQuery] = []

    # --- devices and options -----------------------------------------------------------------------------------------

    def configured(self, applications: Mapping[str, ServiceTerms], now: float) -> Decisions:
        self._applications = dict(applications)
        self._loads = {name: load for name, load in self._loads.items() if name in applications}
        for device in self._devices.values():
            for queued in device.arrange(self._applications):
                self._refuse(queued.query)
            self._changed[device] = None
        return self._decisions(now)

    def offered(self, options: Mapping[Hashable, Mapping[QueryClass, OptionSet]], now: float) -> Decisions:
        for name, option_sets in options.items():
            changed = self._device(name)
            lost = changed.offer(option_sets, self._applications)
            if lost is not None:
                self._unroute(lost, changed)
                self._changed[changed] = None
        return self._decisions(now)

    def device_changed(
        self, device: Hashable, now: float, up: bool | None = None, busy_until: float | None = None
    ) -> Decisions:
        """See :class:`..binding.Binding`; queries leave a device that other work holds, if another is free.

        Raises:
            ValueError: ``busy_until`` is no finite time; nothing is changed then.
        """
        if busy_until is not None and not -INF < busy_until < INF:
            raise ValueError(f"busy_until: must be a finite time, not {busy_until}")
        changed = self._device(device)
        if up is not None and up != changed.up:
            changed.up = up
            if not up:
                self._unroute(changed.clear(), changed)
            self._changed[changed] = None
        if busy_until is not None and (changed.away or busy_until > now):
            changed.busy_until, changed.away = busy_until, busy_until > now
            self._timers.set(changed, busy_until if changed.away else INF)
            self._changed[changed] = None
        return self._decisions(now)

    def rtt_changed(self, device: Hashable, rtt_s: float) -> None:
        self._device(device).rtt_s = rtt_s

    def learned(self, device: Hashable) -> LearnedLatencies | None:
        return self._device(device).corrections.learned()

    def inherit(self, device: Hashable, learned: LearnedLatencies) -> None:
        known = self._device(device)
        if known.corrections.inherit(learned):
            known.recount()

    def lost(self, device: Hashable, now: float) -> Decisions:
        lost = self._device(device)
        for batch in lost.dispatched[:]:
            lost.ended(batch, now, None)
        lost.away = False
        return self.device_changed(device, now, up=False)

    # --- queries -----------------------------------------------------------------------------------------------------

    def arrived(self, queries: Sequence[WaitingQuery], now: float) -> Decisions:
        self._settle(now)
        for query in queries:
            self._load(query.query_class.application).add(query.rows, now)
        for device in dict.fromkeys([self._place(query, now) for query in queries]):
            if device is not None and (not device.dispatched or device.rtt_s):
                self._decide(device, now)
        return self._decisions(now)

    def probe(self, query: WaitingQuery, now: float) -> Decisions:
        return self._decisions(now)

    def finished(self, batch: QueueBatch, now: float, run_s: float | None = None) -> Decisions:
        device = batch.device
        if batch in device.dispatched:
            device.ended(batch, now, run_s)
            self._decide(device, now)
        return self._decisions(now)

    def returned(self, queries: Sequence[WaitingQuery], now: float) -> Decisions:
        for query in queries:
            device = query.reservation.device if isinstance(query.reservation, QueueBatch) else None
            if device is not None and device.up and now >= device.backoff_until:
                back_off(device, now)
            self._unrouted.append((query, device))
        self._settle(now)
        return self._decisions(now)

    def withdrawn(self, query: WaitingQuery, now: float) -> Decisions:
        queued = query.reservation
        if isinstance(queued, QueuedQuery):
            queued.queue.take([queued])
            query.reservation = None
        else:
            self._unrouted = [item for item in self._unrouted if item[0] is not query]
        return self._decisions(now)

    def wake(self, now: float) -> Decisions:
        for device in self._timers.due(now):
            if device.away:
                device.away = device.busy_until > now
                self._changed[device] = None
            else:
                self._decide(device, now)
        self._settle(now)
        return self._decisions(now)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _device(self, name: Hashable) -> QueuedDevice:
        device = self._devices.get(name)
        if device is None:
            device = self._devices[name] = QueuedDevice(name, self._create_policy, self._slack_s, self._load)
        return device

    def _load(self, application: str) -> LoadMonitor:
        load = self._loads.get(application)
        if load is None:
            load = self._loads[application] = LoadMonitor()
        return load

    def _decisions(self, now: float) -> Decisions:
        wake_at = now if self._changed or self._unrouted else self._timers.at
        decisions = Decisions(self._dispatches, self._refusals, wake_at)
        self._dispatches, self._refusals = [], []
        return decisions

    def _settle(self, now: float) -> None:
        """Put changes in force: route by them, and decide what they make possible."""
        changed, self._changed = self._changed, {}
        if changed:
            self._route(now)
        unrouted, self._unrouted = self._unrouted, []
        for query, device in unrouted:
            chosen = self._place(query, now, device)
            if chosen is not None:
                self._decide(chosen, now)
        for device in changed:
            self._decide(device, now)

    def _route(self, now: float) -> None:
        """Give the router the plan's shares over the devices to use.

        These are the devices that are up and not away, or those away where no other device offers an application.
        """
        self._able.clear()
        offering: dict[str, list[QueuedDevice]] = {}
        for device in self._devices.values():
            if device.up:
                for name in device.rates:
                    offering.setdefault(name, []).append(device)
        routes = {}
        for name, devices in offering.items():
            here = [device for device in devices if not device.away]
            for device in devices if here else ():
                if device.away:
                    self._unroute(device.clear(name), device)
            shares = [(device.name, device.rates[name]) for device in here or devices]
            routes[name] = shares if any([rate for _, rate in shares]) else [(device, 1.0) for device, _ in shares]
        self._router.set_routes(routes)

    def _place(self, query: WaitingQuery, now: float, declined: QueuedDevice | None = None) -> QueuedDevice | None:
        """Queue a query where the router says, and return that device.

        The device that declined it is used only where there is no other.

        Returns:
            None: the query is refused.
        """
        terms = self._applications.get(query.query_class.application)
        device = None
        if terms is not None:
            device = self._pick(query, now, set() if declined is None else {declined.name})
            if device is None and declined is not None:
                device = self._pick(query, now, set())
        if device is None:
            self._refuse(query)
        else:
            device.add(query, terms)
        return device

    def _pick(self, query: WaitingQuery, now: float, without: Set[Hashable]) -> QueuedDevice | None:
        application = query.query_class.application
        planned, able = self._able.get(query.query_class) or self._find_able(query.query_class)

        def expected_s(name: Hashable) -> float:
            return self._devices[name].work_s(now, application, query.rows)

        def queued(name: Hashable) -> int:
            return self._devices[name].rows_here()

        choices = [planned - without, able - without]
        if self._router.active_first:
            active = {name for name in choices[0] if self._devices[name].active(now)}
            choices.insert(0, active)
        for names in choices:
            name = self._router.pick(application, query.rows, names, query.deadline - now, expected_s, queued)
            if name is not None:
                return self._devices[name]
        # The router leaves out devices for which the plan has no share, and those that are away.
        left = [device for device in self._devices.values() if device.name in able and device.name not in without]
        return min(left, key=lambda device: (device.away, device.work_s(now)), default=None)

    def _find_able(self, query_class: QueryClass) -> tuple[set[Hashable], set[Hashable]]:
        planned, able = self._able[query_class] = set(), set()
        for device in self._devices.values():
            options = device.options(query_class) if device.up and query_class.application in device.rates else ()
            if options:
                able.add(device.name)
            if any(option.planned for option in options):
                planned.add(device.name)
        return planned, able

    def _decide(self, device: QueuedDevice, now: float) -> None:
        open_at = device.open_at()
        if open_at > now:
            if not device.away:
                self._timers.set(device, open_at)
            return
        batch, dropped, wake_at = device.decide(now)
        for queued in dropped:
            self._refuse(queued.query)
        if batch is not None:
            self._dispatches.append(batch)
            wake_at = device.open_at()
        self._timers.set(device, wake_at)

    def _unroute(self, queries: Iterable[QueuedQuery], device: QueuedDevice) -> None:
        for queued in queries:
            queued.query.reservation = None
            self._unrouted.append((queued.query, device))

    def _refuse(self, query: WaitingQuery) -> None:
        query.reservation = None
        self._refusals.append(query)
