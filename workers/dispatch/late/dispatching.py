"""When what is booked is granted. Pure."""

from __future__ import annotations

from ..options import INF
from ..stragglers import looked_at_again, overdue_at
from ..timers import Wakes
from .device_groups import Fleet
from .schedule import Bookings
from .selection import ROUNDING_S
from .starting import chosen, waits_until
from .state import Batch, Device, pressure_at

#: a batch goes to a device ahead of an answer only if that takes more seconds than this, or if it is full
AHEAD_S = 0.001


class Granting:
    """Grants booked batches when it is time. ``wakes``: when devices are to be considered again; ``grants``: batches
    that were granted, to be taken by the dispatcher."""

    _waits_until = staticmethod(waits_until)
    _chosen = staticmethod(chosen)

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
            pressure = pressure_at(device, batch.application, now, alone)
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
            self._grant(batch, device, batch.application.felt(pressure, now), now)
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


def _ahead(batch: Batch, device: Device) -> bool:
    """Whether a batch is worth granting while another one runs. Ahead of a run that is over in a moment it saves hardly
    any time, and what arrives until the answer is here makes it larger."""
    running = device.granted[0]
    return running.end - running.granted_at > AHEAD_S or batch.rows >= batch.option.max_rows
