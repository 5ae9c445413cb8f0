"""Device selection: which batch a query joins, or where it opens one. Pure.

A query that opens a batch gets a device and an option.
"""

from __future__ import annotations

from operator import attrgetter

from ..binding import WaitingQuery
from ..latency_correction import SLOW
from ..options import INF, ServingOption
from .state import RESERVE_S, ClassOffer, ScheduledBatch, ScheduledDevice, ServedClass

#: open batches that a query is tried on: far into overload there are hundreds, and none has room
JOIN_TRIES = 16
#: bound in seconds on the difference between running sums and fresh ones
SUM_ROUNDING_S = 1e-6
#: seconds after its deadline at which an answer still counts as in time: rounding
ROUNDING_S = 1e-9
_ready_at = attrgetter("ready_at")


# --- open batches ----------------------------------------------------------------------------------------------------


def best_open_batch(
    served: ServedClass, query: WaitingQuery, deadline: float, now: float
) -> tuple[ScheduledBatch | None, ScheduledBatch | None]:
    """Return the most accurate open batch that the query can join with everything in time.

    Returns:
        The most accurate of those where that starves no application that was refused lately; and another one, for where
        the query would be refused otherwise. None: there is none.
    """
    rows, key = query.rows, query.key
    found: ScheduledBatch | None = None
    starving: ScheduledBatch | None = None
    utility = -INF
    tries = JOIN_TRIES
    # The newest first: older ones had no room for the queries in between.
    for batch in reversed(served.open):
        if batch.option.utility > utility and batch.key == key and (batch.served is served or served.may_share(batch)):
            if _can_join(batch, rows, deadline, now):
                if _growth_starves(batch, rows, now):
                    starving = starving or batch
                else:
                    found, utility = batch, batch.option.utility
            tries -= 1
            if not tries:
                break
    return found, starving


def can_follow(batch: ScheduledBatch, query: WaitingQuery, now: float) -> bool:
    """Return whether a query can join the previous query's batch without a search.

    No option is more accurate, the batch is alone on its device, all stays in time, and nobody is starved.
    """
    device, option, rows = batch.device, batch.option, batch.rows + query.rows
    if rows > option.max_rows or batch.dispatched or batch.key != query.key or len(device.scheduled) != 1:
        return False
    if option.utility < batch.served.best_utility:
        return False
    seconds = device.seconds(option, rows)
    if now + device.starts_in(now) + seconds > min(query.deadline, batch.deadline) + ROUNDING_S:
        return False
    # The device is recounted only when all have joined: what counts is the growth since then.
    return not (device.dependents and starves(batch.served, device, seconds - device.scheduled_s, now, 0))


def _can_join(batch: ScheduledBatch, rows: int, deadline: float, now: float) -> bool:
    option, device, grown = batch.option, batch.device, batch.rows + rows
    if grown > option.max_rows:
        return False
    if deadline > batch.deadline + ROUNDING_S:
        deadline = batch.deadline + ROUNDING_S
    end = now + device.starts_in(now)
    scheduled, factor = device.scheduled, device.corrections[option]
    if len(scheduled) == 1:
        return end + option.by_rows[grown] * factor <= deadline
    # Fast reject: if the last scheduled batch would be late, the device is full.
    more_s = (option.seconds(grown) - option.seconds(batch.rows)) * factor
    if end + device.scheduled_s + more_s > scheduled[-1].deadline + SUM_ROUNDING_S:
        return False
    behind = False
    for other in scheduled:
        end += device.seconds(other.option, other.rows)
        if other is batch:
            if end + more_s > deadline:
                return False
            behind = True
        elif behind and end + more_s > other.deadline + ROUNDING_S:
            return False
    return True


def _growth_starves(batch: ScheduledBatch, rows: int, now: float) -> bool:
    device, option = batch.device, batch.option
    if not device.dependents:
        return False
    more_s = device.seconds(option, batch.rows + rows) - device.seconds(option, batch.rows)
    return starves(batch.served, device, more_s, now, 0)


# --- new batches -----------------------------------------------------------------------------------------------------


def best_new_batch(
    served: ServedClass, query: WaitingQuery, now: float, deadline: float, above: float
) -> tuple[ServingOption, ScheduledDevice] | None:
    """The most valuable option above a utility in time, and the device that is first."""
    highest = above
    found: tuple[ServingOption, ScheduledDevice, float] | None = None
    for offer in served.offers:
        device, soonest_s = first_device(offer, now)
        if device is None:
            continue
        value, option = offer.option_set.ranked(_level(offer, soonest_s - device.rtt_s, now))[0]
        if value > highest:
            highest, found = value, (option, device, soonest_s)
    if found is None:
        return None
    # The most valuable option is in time, mostly; only otherwise are all ranked.
    option, first, soonest_s = found
    seconds = first.seconds(option, query.rows)
    if now + soonest_s + seconds <= deadline and not (first.dependents and starves(served, first, seconds, now)):
        return option, first
    return _next_best(served, query.rows, now, deadline, above)


def _next_best(
    served: ServedClass, rows: int, now: float, deadline: float, above: float
) -> tuple[ServingOption, ScheduledDevice] | None:
    """As :func:`best_new_batch`, rather on a device where it starves no other class."""
    ranked = []
    for offer in served.offers:
        device, soonest_s = first_device(offer, now)
        if device is None or now + soonest_s > deadline:
            continue
        options = offer.option_set.ranked(_level(offer, soonest_s - device.rtt_s, now))
        ranked += [(value, rank, option, device, soonest_s, offer) for rank, (value, option) in enumerate(options)]
    ranked.sort(key=lambda candidate: (-candidate[0], candidate[1]))
    fallback = None
    for value, _, option, device, soonest_s, offer in ranked:
        if value <= above:
            break
        if option.utility <= above:
            continue
        seconds = device.seconds(option, rows)
        if now + soonest_s + seconds > deadline:
            continue
        if device.dependents and starves(served, device, seconds, now):
            if fallback is None:
                fallback = option, device
            device = _first_not_starving(served, offer, option, rows, deadline, now)
        if device is not None:
            return option, device
    return fallback


def _level(offer: ClassOffer, waited_s: float, now: float) -> int:
    pressure, usual = offer.pressure(now), offer.usual
    usual.total += pressure
    usual.queries += 1.0
    return offer.level(pressure, waited_s)


def first_device(offer: ClassOffer, now: float) -> tuple[ScheduledDevice | None, float]:
    """The device of an offer that could start first, and in how many seconds."""
    best, soonest_s = None, INF
    for group in offer.groups:
        if best is not None and soonest_s <= best.rtt_s:
            continue
        if group.idle:
            # The longest idle device, or the fastest idle one if that is slow.
            option, best = offer.option_set.options[0], next(iter(group.idle))
            if best.corrections[option] > SLOW:
                best = min(group.idle, key=lambda other: other.corrections[option])
            soonest_s = best.rtt_s
            continue
        device = min(group.devices, key=_ready_at)
        wait_s = device.starts_in(now) + device.scheduled_s
        if wait_s < soonest_s:
            best, soonest_s = device, wait_s
    return best, soonest_s


def starves(served: ServedClass, device: ScheduledDevice, seconds: float, now: float, least: int = 1) -> bool:
    """Return whether ``seconds`` more work starves another application.

    Args:
        least: how many devices must stay able to take the next query where none was refused lately.
    """
    wait_s = device.starts_in(now) + device.scheduled_s
    for other, limit_s in device.dependents:
        if wait_s > limit_s or wait_s + seconds <= limit_s:
            continue
        if other.query_class.application == served.query_class.application:
            continue
        needed = other.reserve if now - other.refused_at < RESERVE_S else least
        for another, its_limit_s in other.exclusive_devices:
            if not needed:
                break
            if another is device:
                continue
            # As in ``starts_in``, without a call for each device.
            its_wait_s = another.free_at - now
            if (its_wait_s if its_wait_s > another.rtt_s else another.rtt_s) + another.scheduled_s <= its_limit_s:
                needed -= 1
        if needed:
            return True
    return False


def _first_not_starving(
    served: ServedClass, offer: ClassOffer, option: ServingOption, rows: int, deadline: float, now: float
) -> ScheduledDevice | None:
    best, soonest_s = None, INF
    for device in offer.devices():
        wait_s = device.starts_in(now) + device.scheduled_s
        seconds = device.seconds(option, rows)
        if wait_s >= soonest_s or now + wait_s + seconds > deadline:
            continue
        if not (device.dependents and starves(served, device, seconds, now)):
            best, soonest_s = device, wait_s
    return best


def most_accurate_in_time(
    served: ServedClass, rows: int, now: float, deadline: float, sustaining: bool
) -> tuple[ServingOption, ScheduledDevice] | None:
    """As :func:`best_new_batch`, on all devices: they differ in trip and correction.

    Args:
        sustaining: only where there is time for a sustaining batch.
    """
    best, utility = None, -INF
    for offer, device in served.candidates:
        options = offer.option_set.options
        # Summed in the order in which dispatching sums: else rounding could reschedule a query forever.
        start = now + device.starts_in(now) + device.scheduled_s
        if options[0].utility <= utility or start + offer.option_set.least(rows) > deadline:
            continue
        if sustaining and not sustains(offer, device, now, deadline):
            continue
        for option in options:
            if option.utility <= utility:
                break
            if start + device.seconds(option, rows) <= deadline:
                best, utility = (option, device), option.utility
                break
    return best


def sustains(offer: ClassOffer, device: ScheduledDevice, now: float, deadline: float) -> bool:
    """Return whether a new batch behind others leaves time for a sustaining batch (see :mod:`.congestion`).

    What is scheduled later makes more queries late than it serves.
    """
    if not (device.scheduled or device.dispatched):
        return True
    return now + device.starts_in(now) + device.scheduled_s + offer.needs.batch_s <= deadline


def most_accurate_by_profile(
    served: ServedClass, query: WaitingQuery, now: float
) -> tuple[ServingOption, ScheduledDevice] | None:
    best, utility = None, -INF
    for offer, device in served.candidates:
        if device.scheduled or device.dispatched or device.free_at > now:
            continue
        for option in offer.option_set.options:
            if option.utility > utility and now + device.rtt_s + option.seconds(query.rows) <= query.deadline:
                best, utility = (option, device), option.utility
                break
    return best
