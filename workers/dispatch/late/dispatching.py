"""When what is booked is granted. Pure."""

from __future__ import annotations

from ..options import INF, LEVELS, PRICES, Option
from ..stragglers import looked_at_again, overdue_at
from ..timers import Wakes
from .device_groups import Fleet
from .interarrival import STEP
from .schedule import Bookings
from .selection import ROUNDING_S
from .state import Batch, Device

#: a batch goes to a device ahead of an answer only if that takes more seconds than this, or if it is full
AHEAD_S = 0.001
#: how long a batch that may still grow waits on an idle device: of the time that its first query can spare at all, this
#: part while nothing else is booked, and so much more at full pressure
WAIT = 0.25
WAIT_UNDER_PRESSURE = 0.5
#: nor longer than it will run, or so many times as long at full pressure: company halves what a row costs at best
LONGER_UNDER_PRESSURE = 8.0
#: company is due where a wait is longer than the median time between arrivals, and so many times as long if no two
#: queries have been under way together of late
ALONE = 2.0
#: a batch that is over sooner than this waits so long for queries that follow each other more closely still: to hand
#: a batch over and to take its answers back costs more than such a run, however small the batch (network cards coalesce
#: interrupts for the same reason)
COALESCE_S = 0.0005
#: queries that must be expected in that time
COALESCED = 2.0


class Granting:
    """Grants booked batches when it is time. ``wakes``: when devices are to be considered again; ``grants``: batches
    that were granted, to be taken by the dispatcher."""

    def __init__(self, fleet: Fleet, bookings: Bookings, wakes: Wakes) -> None:
        self._fleet = fleet
        self._bookings = bookings
        self._wakes = wakes
        self.grants: list[Batch] = []

    def settle(self, now: float) -> None:
        """Consider all devices of which something has changed, also those for which that is so meanwhile."""
        touched = self._bookings.touched
        while touched:
            device = next(iter(touched))
            del touched[device]
            self.consider(device, now)

    def consider(self, device: Device, now: float) -> None:
        """Grant what is booked on the device if it is time, else wake when it will be."""
        booked = device.booked
        while booked and device.up:
            granted = device.granted
            if granted and (
                len(granted) > 1 or not device.way_s or not _ahead(booked[0], device) or now > overdue_at(device)
            ):
                # Nothing more before an answer comes; but if none does, what is booked must not wait for ever.
                self._wakes.set(device, looked_at_again(device, now))
                return
            if device.free_at > now:
                # Just in time: it arrives as the device becomes free.
                at = device.free_at - device.way_s
                if at > now:
                    self._wakes.set(device, at)
                    return
            if device.away:
                self._fleet.set_away(device, False, now)
            batch = booked[0]
            if now + device.starts_in(now) + device.seconds(batch.option, batch.rows) > batch.deadline + ROUNDING_S:
                # Woken too late, or things have changed: nothing is granted that is bound to be late.
                self._bookings.check(device, now)
                continue
            alone = len(booked) == 1 and not granted
            application = batch.application
            group = device.kind.groups[application.query_class]
            pressure = group.pressure(now, application.bookable_s(now), device if alone else None)
            if alone:
                if now < batch.ready_at:
                    batch.ready_at = now
                until = self._waits_until(batch, device, pressure, now)
                if until > now:
                    # On the way others' work there may end, of which nothing else tells.
                    self._wakes.set(device, device.free_at if now < device.free_at < until else until)
                    return
            self._bookings.take(batch)
            # Dear is only what takes the device's time: to wait longer for company would leave it idle.
            self._grant(batch, device, application.felt(pressure, now), now)
        if device.free_at > now and not device.granted and not device.away and device.up:
            # When others' work there ends nothing else tells.
            self._wakes.set(device, device.free_at)
        elif device.wake_at != INF:
            self._wakes.set(device, INF)

    def grant_alone(self, batch: Batch, now: float) -> None:
        """Grant a batch that was never booked to its idle device."""
        self._grant(batch, batch.device, 1.0, now)

    def _grant(self, batch: Batch, device: Device, pressure: float, now: float) -> None:
        """Grant a batch that is no longer booked."""
        start = now + device.starts_in(now)
        option = batch.option = self._chosen(batch, device, start, pressure, now)
        batch.granted, batch.granted_at = True, now
        batch.end = device.free_at = start + option.seconds(batch.rows) * device.factors[option]
        device.granted.append(batch)
        self._fleet.note(device, now)
        self.grants.append(batch)

    @staticmethod
    def _waits_until(batch: Batch, device: Device, pressure: float, now: float) -> float:
        """Until when a batch that is the only one on an idle device waits for company; ``now`` or earlier: not at all,
        as when none is to be expected before."""
        application, option, rows = batch.application, batch.option, batch.rows
        if rows >= option.max_rows or not option.improves[rows] or batch.deadline == INF:
            return now
        arrived = batch.queries[0].arrived
        way_s, factor = device.way_s, device.factors[option]
        by_rows = option.by_rows
        spare = batch.deadline - arrived - by_rows[1] * factor - way_s
        wait = (WAIT + WAIT_UNDER_PRESSURE * pressure) * spare
        longest = (1.0 + LONGER_UNDER_PRESSURE * pressure) * by_rows[rows]
        until = arrived + (wait if wait < longest else longest)
        last = batch.deadline - max(by_rows[rows + 1], by_rows[rows]) * factor - way_s
        if last < until:
            until = last
        left = until - now
        demand = application.demand
        gaps = demand.gaps
        # The median is known to a step. Where nobody else has been under way of late it may be that of a lone client
        # whose next query follows the answer, a little later than the batch could wait.
        if left >= (STEP if demand.most_under_way > 1 else ALONE) * gaps.median_s:
            return until
        if (
            COALESCED * gaps.mean_s <= COALESCE_S
            and demand.under_way < demand.most_under_way
            and by_rows[rows] * factor <= COALESCE_S <= wait
        ):
            until = batch.ready_at + COALESCE_S
            return last if last < until else until
        return now

    @staticmethod
    def _chosen(batch: Batch, device: Device, start: float, pressure: float, now: float) -> Option:
        """The variant for a batch that starts at ``start``: the most valuable one that keeps it, and all that is booked
        behind it, in time; what it was booked with where there is no other."""
        rows, option = batch.rows, batch.option
        menu = device.menus[batch.application.query_class]
        level = int(pressure * LEVELS)
        if level >= LEVELS:
            level = LEVELS - 1
        # Another variant than the most accurate one must save more than it costs; often none can.
        if option is menu.options[0] and PRICES[level] * option.seconds(rows) <= menu.lead * rows:
            return option
        end = batch.deadline
        if device.booked:
            end = min(end, start + device.slack(now))
        better = menu.best(rows, len(batch.queries), end + ROUNDING_S - start, device.factors, level)
        return option if better is None else better


def _ahead(batch: Batch, device: Device) -> bool:
    """Whether a batch is worth granting while another one runs. Ahead of a run that is over in a moment it saves hardly
    any time, and what arrives until the answer is here makes it larger."""
    running = device.granted[0]
    return running.end - running.granted_at > AHEAD_S or batch.rows >= batch.option.max_rows
