"""Where a query may open a batch while others are being refused. Pure; books nothing.

A device that is booked out to the SLO has room for one row more each time that it has run one. Who takes that room
opens a batch whose deadline is exactly met, which nobody can join any more: batches of one row, however much larger
ones would gain, so that devices answer least when most is asked of them. Therefore, for a while after a refusal, a
batch is opened behind others only where it has room to grow: for as many rows as make a row cheap. Until there is so
much room queries are refused, at once, and fewer of them in all.
"""

from __future__ import annotations

from ..options import INF, Option
from .state import Application, Device, Query

#: of the time that a query has, the part that a batch may be meant to fill: the rest is for what is ahead of it
PART = 0.5


def budget(application: Application, query: Query) -> float:
    """Seconds that the query was given, or the SLO where that is less."""
    seconds = query.deadline - query.arrived
    return seconds if seconds < application.slo_s else application.slo_s


def rows_meant(option: Option, device: Device, rows: int, budget_s: float) -> int:
    """For how many rows a batch that is opened with ``rows`` should have room: the fewest of those that run in half of
    the budget with which a row costs hardly more than it can."""
    limit_s = PART * budget_s / device.factors[option]
    most = option.max_rows
    while most > rows and option.seconds(most) > limit_s:
        most -= 1
    return option.thrifty[most] if most > rows and option.thrifty[most] > rows else rows


def kept_free(application: Application, query: Query, now: float) -> float:
    """Seconds of the query's time for which busy devices are not to be booked."""
    part = application.kept(now)
    return part * budget(application, query) if part else 0.0


def roomy(option: Option, device: Device, rows: int, now: float, deadline: float, budget_s: float) -> bool:
    """Whether a batch that the query opens on the device could grow to what it is meant for. Where the device has no
    other to run, be it idle or loading something, it need not: whatever it is, it is better than nothing."""
    if not (device.booked or device.granted):
        return True
    meant = rows_meant(option, device, rows, budget_s)
    return now + device.starts_in(now) + device.booked_s + device.seconds(option, meant) <= deadline


def spacious(
    application: Application, rows: int, now: float, deadline: float, budget_s: float, kept_s: float = 0.0
) -> tuple[Option, Device] | None:
    """The most accurate variant for which any device has room for a batch that can grow; ``kept_s`` seconds before the
    deadline, where the device has others to run."""
    best, worth = None, -INF
    for group, device in application.crowd:
        end = deadline - kept_s if device.booked or device.granted else deadline
        if now + device.starts_in(now) + device.booked_s + group.menu.least(rows) > end:
            continue
        for option in group.menu.options:
            if option.worth <= worth:
                break
            if now + device.starts_in(now) + device.seconds(option, rows) <= end and roomy(
                option, device, rows, now, end, budget_s
            ):
                best, worth = (option, device), option.worth
                break
    return best


def overtakes(application: Application, deadline: float) -> bool:
    """Whether something is booked on the application's devices that may wait for longer than its query."""
    return any(device.booked and device.booked[-1].deadline > deadline for _, device in application.crowd)
