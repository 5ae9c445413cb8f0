"""Where a query fits that has no usual place: in front of what can wait, or by hurrying what is booked. Pure; books
nothing."""

from __future__ import annotations

from collections.abc import Iterator

from ..options import Option
from .admission import rows_meant
from .selection import FULL_MARGIN_S, ROUNDING_S
from .state import LOOKS, Application, Batch, Device, Group


def insertion(
    application: Application,
    rows: int,
    now: float,
    deadline: float,
    budget_s: float | None,
    kept_s: float,
    hurry: bool,
) -> tuple[Option, Device, int, list[Option] | None] | None:
    """A variant, a device and a position (see :meth:`Device.room`) where the query fits in front of what is booked
    and can wait so long. ``budget_s``: with room to grow (:func:`rows_meant`); ``kept_s``: all in time by so much.
    ``hurry``: or behind all, if what is booked runs on quicker variants: those too, one for each batch."""
    for group, device in _crowded(application):
        start, least = now + device.starts_in(now), group.menu.least(rows)
        if start + least > deadline:
            continue
        quicker = [_quickest(batch, device) for batch in device.booked] if hurry else None
        if not hurry and start + device.booked_s + least > device.booked[-1].deadline + FULL_MARGIN_S:
            continue
        room = device.room(now, quicker)
        for option in group.menu.options:
            meant = rows if budget_s is None else rows_meant(option, device, rows, budget_s)
            seconds = option.seconds(meant) * device.factors[option]
            for position in range(len(room) - 1, -1, -1):
                at, most = room[position]
                if seconds <= most + ROUNDING_S - kept_s and at + seconds <= deadline - kept_s:
                    return option, device, position, quicker
    return None


def _crowded(application: Application) -> Iterator[tuple[Group, Device]]:
    """Some of the application's devices on which something is booked, others each time: where all are, to look at every
    one for every query would cost more than it brings."""
    hosts = application.crowd
    count = len(hosts)
    looks = 0
    first = application.looked_at
    for i in range(count):
        group, device = hosts[(first + i) % count]
        if device.booked:
            looks += 1
            if looks > LOOKS:
                application.looked_at = (first + i) % count
                return
            yield group, device
    if count:
        application.looked_at = (first + 1) % count


def _quickest(batch: Batch, device: Device) -> Option:
    rows, best = batch.rows, batch.option
    least = device.seconds(best, rows)
    for option in device.menus[batch.application.query_class].options:
        seconds = device.seconds(option, rows)
        if (option.max_rows >= rows or len(batch.queries) == 1) and seconds < least:
            best, least = option, seconds
    return best
