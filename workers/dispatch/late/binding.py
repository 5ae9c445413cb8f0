"""Late binding behind the interface of :mod:`..binding`. Pure.

1. A query arrives. It joins a scheduled batch, or opens one with the option and device of the highest value that are
   in time behind all that is scheduled there (:mod:`.selection`); else it is refused.
2. Any event may delay a device: its late batches are downgraded to faster options, or rescheduled (:mod:`.schedule`).
3. Shortly before a device is free, its first batch gets the most valuable option that is in time, and is dispatched
   (:mod:`.dispatching`).
4. Its answer corrects the device's latency estimates (:mod:`..latency_correction`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

from ..binding import Decisions, QueryClass, ServiceTerms, WaitingQuery
from ..feedback import back_off, decay_corrections, learn
from ..latency_correction import LearnedLatencies
from ..options import INF, LEVELS, OptionSet
from ..timers import TimerQueue
from .congestion import Congestion
from .device_groups import DeviceGroups
from .dispatching import Dispatching
from .schedule import Schedule
from .selection import most_accurate_by_profile
from .state import ScheduledBatch, ScheduledDevice
from .stragglers import postpone, straggles_at

#: seconds between sweeps for changes that no event reports
SWEEP_S = 0.1


class LateBinding:
    """Implements :class:`..binding.Binding`."""

    def __init__(self) -> None:
        self._groups = DeviceGroups()
        self._timers = TimerQueue()
        self._schedule = Schedule(self._groups)
        self._dispatching = Dispatching(self._groups, self._schedule, self._timers)
        self._congestion = Congestion()
        self._sweep_at = -INF
        self._quiet = Decisions()

    def _decisions(self, now: float) -> Decisions:
        schedule, dispatching = self._schedule, self._dispatching
        if schedule.changed:
            dispatching.consider_changed(now)
        dispatches, refusals, wake_at = dispatching.dispatches, schedule.refusals, self._timers.at
        if not dispatches and not refusals:
            if self._quiet.wake_at != wake_at:
                self._quiet = Decisions(wake_at=wake_at)
            return self._quiet
        if dispatches:
            dispatching.dispatches = []
        if refusals:
            schedule.refusals = []
        return Decisions(dispatches, refusals, wake_at)

    # --- plan and devices --------------------------------------------------------------------------------------------

    def configured(self, applications: Mapping[str, ServiceTerms], now: float) -> Decisions:
        for gone in self._groups.configure(applications):
            for device in self._groups.devices.values():
                for batch in [batch for batch in device.scheduled if batch.served is gone]:
                    self._schedule.remove(batch, now)
                    self._schedule.refuse(batch.queries)
        self._groups.regroup(now)
        return self._decisions(now)

    def offered(self, options: Mapping[Hashable, Mapping[QueryClass, OptionSet]], now: float) -> Decisions:
        known = {self._groups.device(name): option_sets for name, option_sets in options.items()}
        changed = [device for device, option_sets in known.items() if self._groups.offer(device, option_sets)]
        if changed:
            self._groups.regroup(now)
            displaced = []
            for device in changed:
                self._schedule.changed[device] = None
                for batch in device.scheduled:
                    left = device.option_sets.get(batch.served.query_class)
                    if left is None or all(option.key != batch.option.key for option in left.options):
                        displaced.append(batch)
            self._schedule.displace(displaced, now)
        return self._decisions(now)

    def device_changed(
        self, device: Hashable, now: float, up: bool | None = None, busy_until: float | None = None
    ) -> Decisions:
        if busy_until is not None and not -INF < busy_until < INF:
            raise ValueError(f"busy_until: must be a finite time, not {busy_until}")
        known = self._groups.device(device)
        if up is not None and up != known.up:
            self._set_up(known, up, now)
        if busy_until is not None:
            self._set_busy(known, busy_until, now)
        return self._decisions(now)

    def rtt_changed(self, device: Hashable, rtt_s: float) -> None:
        self._groups.device(device).rtt_s = rtt_s

    def learned(self, device: Hashable) -> LearnedLatencies | None:
        return self._groups.device(device).corrections.learned()

    def inherit(self, device: Hashable, learned: LearnedLatencies) -> None:
        known = self._groups.device(device)
        if known.corrections.inherit(learned):
            known.recount()

    def lost(self, device: Hashable, now: float) -> Decisions:
        known = self._groups.device(device)
        for batch in known.dispatched:
            batch.served.demand.pending -= len(batch.queries)
        known.dispatched.clear()
        known.free_at = known.busy_until = now
        self._groups.update(known, now)
        if known.up:
            self._set_up(known, False, now)
        return self._decisions(now)

    def _set_up(self, device: ScheduledDevice, up: bool, now: float) -> None:
        device.up = up
        self._groups.regroup(now)
        self._schedule.changed[device] = None
        if not up:
            self._schedule.displace(device.scheduled, now)

    def _set_busy(self, device: ScheduledDevice, until: float, now: float) -> None:
        """Others' work holds the device. Dispatched batches that have not reached it yet run after that."""
        device.busy_until = until
        until = max(until, device.backoff_until)
        if until > now or device.free_at > now:
            device.free_at = max([until, *(batch.end for batch in device.dispatched)])
            self._groups.update(device, now)
            self._schedule.check(device, now)
            self._consider(device, now)

    # --- queries -----------------------------------------------------------------------------------------------------

    def arrived(self, queries: Sequence[WaitingQuery], now: float) -> Decisions:
        if now >= self._sweep_at:
            self._sweep(now)
        find = self._groups.find_class
        if len(queries) == 1:
            query = queries[0]
            served = self._groups.classes.get(query.query_class) or find(query.query_class, now)
            if served is None:
                self._schedule.refuse(queries)
            else:
                served.demand.arrived(1, query.rows, now)
                self._schedule.reserve(served, query, now)
            return self._decisions(now)
        rows: Counter[QueryClass] = Counter()
        for query in queries:
            rows[query.query_class] += query.rows
        for query_class, count in Counter(query.query_class for query in queries).items():
            if (served := find(query_class, now)) is not None:
                served.demand.arrived(count, rows[query_class], now)
        self._schedule.reserve_all([(find(query.query_class, now), query) for query in queries], now)
        return self._decisions(now)

    def probe(self, query: WaitingQuery, now: float) -> Decisions:
        served = self._groups.find_class(query.query_class, now)
        found = None if served is None else most_accurate_by_profile(served, query, now)
        if found is not None:
            option, device = found
            served.demand.pending += 1
            start = now + device.starts_in(now)
            self._dispatching.dispatch(ScheduledBatch(served, option, device, query), LEVELS - 1, start, now)
        return self._decisions(now)

    def withdrawn(self, query: WaitingQuery, now: float) -> Decisions:
        self._schedule.withdraw(query, now)
        return self._decisions(now)

    def finished(self, batch: ScheduledBatch, now: float, run_s: float | None = None) -> Decisions:
        device = batch.device
        dispatched = device.dispatched
        if batch not in dispatched:
            return self._decisions(now)
        dispatched.remove(batch)
        batch.served.demand.pending -= len(batch.queries)
        if run_s is not None:
            learn(device, batch.option, batch.rows, run_s, now)
            device.backoff_s, device.backoff_until = 0.0, -INF
        # The next batch has just begun, or is on its way, whatever was expected.
        self._expect(device, now)
        self._groups.update(device, now)
        # Where it still backs off, a timer must end that.
        if device.scheduled or device.away:
            self._schedule.check(device, now)
            self._schedule.changed[device] = None
        return self._decisions(now)

    @staticmethod
    def _expect(device: ScheduledDevice, now: float) -> None:
        end = now
        for batch in device.dispatched:
            transfer_s = batch.option.row_transfer_s * batch.rows
            began = max(end, batch.dispatched_at + device.rtt_s + transfer_s)
            end = batch.end = began + device.seconds(batch.option, batch.rows) - transfer_s
        device.free_at = max(end, device.busy_until, device.backoff_until)

    def returned(self, queries: Sequence[WaitingQuery], now: float) -> Decisions:
        reservations = [query.reservation for query in queries if query.reservation is not None]
        for device in dict.fromkeys(batch.device for batch in reservations):
            if device.up and now >= device.backoff_until:
                back_off(device, now)
                self._set_busy(device, device.busy_until, now)
        for batch in reservations:
            batch.served.demand.pending += 1
        self._schedule.reschedule(queries, now)
        return self._decisions(now)

    # --- time --------------------------------------------------------------------------------------------------------

    def wake(self, now: float) -> Decisions:
        for device in self._timers.due(now):
            if device.scheduled and device.dispatched and now > straggles_at(device):
                self._postpone(device, now)
                self._schedule.check(device, now)
            self._consider(device, now)
            if device.away:
                # Others' work there may have ended.
                self._groups.update(device, now)
        return self._decisions(now)

    def _consider(self, device: ScheduledDevice, now: float) -> None:
        self._schedule.changed[device] = None
        self._dispatching.consider_changed(now)

    def _postpone(self, device: ScheduledDevice, now: float) -> None:
        postpone(device, now)
        self._groups.update(device, now)

    def _sweep(self, now: float) -> None:
        self._sweep_at = now + SWEEP_S
        if now >= self._congestion.look_at:
            self._congestion.look(self._groups.classes.values(), now)
        for device in self._groups.devices.values():
            if device.dispatched and not device.scheduled and device.free_at <= now and now > straggles_at(device):
                self._postpone(device, now)
            if now >= device.decay_at and decay_corrections(device, now):
                self._groups.update(device, now)
