"""Dispatch of scheduled batches: its time, and the option to run. Pure."""

from __future__ import annotations

from ..options import INF, PRICES, ServingOption
from ..timers import TimerQueue
from .device_groups import DeviceGroups
from .interarrival import STEP
from .schedule import Schedule
from .selection import ROUNDING_S
from .state import ScheduledBatch, ScheduledDevice
from .stragglers import next_check_at, straggles_at

#: a batch is sent before the previous answer only if that run takes more seconds than this, or if the batch is full
AHEAD_S = 0.001
#: longest batching delay, as a part of the time that the first query can spare: idle, and in addition at full pressure
DELAY = 0.25
DELAY_UNDER_PRESSURE = 0.5
#: longest batching delay, as a multiple of the batch's run time: 1 when idle, and in addition at full pressure
RUNS_UNDER_PRESSURE = 8.0
#: shortest useful batching delay, in median interarrival times, for a client that waits for each answer
LONE_CLIENT = 2.0
#: seconds that shorter batches wait for queries in quick succession: dispatch and answer cost more than such a run
#: (network cards coalesce interrupts for the same reason)
COALESCE_S = 0.0005
#: queries that must be expected in that time
COALESCED = 2.0


class Dispatching:
    """``dispatches``: batches to send; the binding collects them."""

    def __init__(self, groups: DeviceGroups, schedule: Schedule, timers: TimerQueue) -> None:
        self._groups = groups
        self._schedule = schedule
        self._timers = timers
        self.dispatches: list[ScheduledBatch] = []

    def consider_changed(self, now: float) -> None:
        changed = self._schedule.changed
        while changed:
            device = next(iter(changed))
            del changed[device]
            self._consider(device, now)

    def _consider(self, device: ScheduledDevice, now: float) -> None:
        scheduled = device.scheduled
        while scheduled and device.up:
            dispatched = device.dispatched
            if dispatched and not (device.rtt_s and self._may_send_ahead(device, now)):
                # Wait for an answer; if none comes, the schedule must move on.
                self._timers.set(device, next_check_at(device, now))
                return
            if device.free_at > now:
                # Just in time: the batch arrives when the device becomes free.
                first = scheduled[0]
                at = device.free_at - device.rtt_s - first.option.row_transfer_s * first.rows
                if at > now:
                    self._timers.set(device, at)
                    return
            if device.away:
                self._groups.update(device, now)
            batch = scheduled[0]
            start = now + device.starts_in(now)
            if start + device.seconds(batch.option, batch.rows) > batch.deadline + ROUNDING_S:
                # A late timer, or a change: never dispatch a batch that is bound to be late.
                self._schedule.check(device, now)
                continue
            alone = len(scheduled) == 1 and not dispatched
            offer = device.group.offers[batch.served]
            pressure = offer.pressure(now, device if alone else None)
            if alone:
                if now < batch.ready_at:
                    batch.ready_at = now
                until = self._delay_until(batch, device, pressure, now)
                if until > now:
                    # No event reports when others' work on the device ends.
                    self._timers.set(device, device.free_at if now < device.free_at < until else until)
                    return
            # On an idle device queries wait by choice.
            waited_s = now - batch.queries[0].arrived if not alone or device.free_at >= now else 0.0
            level = offer.level(pressure, waited_s)
            self._schedule.take_first(batch)
            self.dispatch(batch, level, start, now)
        if device.free_at > now and not device.dispatched and device.up:
            self._timers.set(device, device.free_at)
        elif device.wake_at != INF:
            self._timers.set(device, INF)

    def dispatch(self, batch: ScheduledBatch, level: int, start: float, now: float) -> None:
        device = batch.device
        option = batch.option = self._choose_option(batch, start, level, now)
        batch.dispatched, batch.dispatched_at = True, now
        batch.end = start + device.seconds(option, batch.rows)
        if option.row_transfer_s:
            # On the way while the device still runs another batch.
            batch.end -= min(option.row_transfer_s * batch.rows, max(0.0, start - now - device.rtt_s))
        device.free_at = batch.end
        device.dispatched.append(batch)
        self._groups.update(device, now)
        self.dispatches.append(batch)

    def _may_send_ahead(self, device: ScheduledDevice, now: float) -> bool:
        """Behind a short run it saves little, and without a round trip nothing."""
        if len(device.dispatched) > 1 or now > straggles_at(device):
            return False
        running, batch = device.dispatched[0], device.scheduled[0]
        return running.end - running.dispatched_at > AHEAD_S or batch.rows >= batch.option.max_rows

    def _delay_until(self, batch: ScheduledBatch, device: ScheduledDevice, pressure: float, now: float) -> float:
        """When the delay of an idle device's only batch ends; ``now`` or earlier: none."""
        option, rows = batch.option, batch.rows
        if rows >= option.max_rows or not option.improves[rows] or batch.deadline == INF:
            return now
        arrived = batch.queries[0].arrived
        rtt_s, factor, by_rows = device.rtt_s, device.corrections[option], option.by_rows
        spare_s = batch.deadline - arrived - by_rows[1] * factor - rtt_s
        delay_s = (DELAY + DELAY_UNDER_PRESSURE * pressure) * spare_s
        longest_s = (1.0 + RUNS_UNDER_PRESSURE * pressure) * by_rows[rows]
        run_s = by_rows[rows]
        more_s = by_rows[rows + 1]
        latest = batch.deadline - (more_s if more_s > run_s else run_s) * factor - rtt_s
        until = arrived + (delay_s if delay_s < longest_s else longest_s)
        if latest < until:
            until = latest
        demand = batch.served.demand
        # With one query pending at a time, the median may be that of a lone client who waits for this very answer.
        if until - now >= (STEP if demand.peak_pending > 1 else LONE_CLIENT) * demand.interarrival.median_s:
            return until
        if (
            COALESCED * demand.interarrival.mean_s <= COALESCE_S
            and demand.pending < demand.peak_pending
            and by_rows[rows] * factor <= COALESCE_S <= delay_s
        ):
            return min(batch.ready_at + COALESCE_S, latest)
        return now

    def _choose_option(self, batch: ScheduledBatch, start: float, level: int, now: float) -> ServingOption:
        """The most valuable option that keeps the batch and all behind it in time.

        Without one, the scheduled one is returned.
        """
        device, rows, option = batch.device, batch.rows, batch.option
        options = device.option_sets[batch.served.query_class]
        # Another option than the most accurate one must save more than it costs; often none can.
        if option is options.options[0] and PRICES[level] * option.seconds(rows) <= options.lead * rows:
            return option
        end = batch.deadline
        if device.scheduled:
            end = min(end, start + device.insertion_points(now)[0][1])
        return options.best(rows, len(batch.queries), end + ROUNDING_S - start, device.corrections, level) or option
