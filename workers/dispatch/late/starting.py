"""When a booked batch starts, and with which variant: as late, and as accurate, as all that is booked allows. Pure;
changes nothing."""

from __future__ import annotations

from ..options import INF, LEVELS, PRICES, Option
from .interarrival import STEP
from .selection import ROUNDING_S
from .state import Batch, Device

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


def waits_until(batch: Batch, device: Device, pressure: float, now: float) -> float:
    """Until when a batch that is the only one on an idle device waits for company; ``now`` or earlier: not at all, as
    when none is to be expected before."""
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
    # The median is known to a step. Where nobody else has been under way of late it may be that of a lone client whose
    # next query follows the answer, a little later than the batch could wait: it must not be waited for each time that
    # the median is low, or that a run was shorter than its profile.
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


def chosen(batch: Batch, device: Device, start: float, pressure: float, now: float) -> Option:
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
