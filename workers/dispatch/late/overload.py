"""Admission of new batches under overload and where queries wait long. Pure.

A device that is scheduled up to the SLO frees room for one row each time that it has run one. A query that took it
would open a batch that no other can join: batches of one row, just when devices should answer most. So for a while
after a refusal, a batch behind others needs room to grow to an efficient size. It also needs the time of a sustaining
batch (see :mod:`.congestion`), refusal or not: what is scheduled later makes more queries late than it serves.
"""

from __future__ import annotations

from ..binding import WaitingQuery
from ..options import ServingOption
from .state import ClassOffer, ScheduledDevice, ServedClass

#: the part of a query's time that a batch may grow to fill: the rest is for the batches before it
GROWTH_FRACTION = 0.5


def budget_s_of(served: ServedClass, query: WaitingQuery) -> float:
    return min(query.deadline - query.arrived, served.slo_s)


def target_rows(option: ServingOption, device: ScheduledDevice, rows: int, budget_s: float) -> int:
    """The fewest efficient rows that run in :data:`GROWTH_FRACTION` of the budget."""
    limit_s = GROWTH_FRACTION * budget_s / device.corrections[option]
    most = option.max_rows
    while most > rows and option.seconds(most) > limit_s:
        most -= 1
    return max(option.efficient_rows[most], rows) if most > rows else rows


def sustains(offer: ClassOffer, device: ScheduledDevice, now: float, deadline: float) -> bool:
    """Return whether a new batch behind others leaves time for a sustaining batch."""
    return now + device.starts_in(now) + device.scheduled_s + offer.needs.batch_s <= deadline


def can_grow(
    offer: ClassOffer,
    option: ServingOption,
    device: ScheduledDevice,
    rows: int,
    now: float,
    deadline: float,
    budget_s: float,
) -> bool:
    """Whether it could grow to target and sustaining batch; alone there it need not."""
    if not (device.scheduled or device.dispatched):
        return True
    seconds = device.seconds(option, target_rows(option, device, rows, budget_s))
    if offer.needs.batch_s > seconds:
        seconds = offer.needs.batch_s
    return now + device.starts_in(now) + device.scheduled_s + seconds <= deadline
