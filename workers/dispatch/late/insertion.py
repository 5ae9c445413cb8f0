"""Insertion of a query between scheduled batches. Pure.

The batches keep their scheduled options, or are downgraded first.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..options import ServingOption
from .overload import target_rows
from .selection import ROUNDING_S, SUM_ROUNDING_S
from .state import SAMPLED_DEVICES, ClassOffer, ScheduledBatch, ScheduledDevice, ServedClass


def find_insertion(
    served: ServedClass,
    rows: int,
    now: float,
    deadline: float,
    budget_s: float | None,
    margin_s: float,
    downgrade: bool,
) -> tuple[ServingOption, ScheduledDevice, int, list[ServingOption] | None] | None:
    """Return an option, a device and a position that keep everything in time.

    The position is one of the device's insertion points. The last item holds the downgrades, if any.

    Args:
        budget_s: under overload: room to grow is required (see :func:`.overload.target_rows`).
        margin_s: everything must be in time by so much.
        downgrade: run the scheduled batches with faster options, which are returned too, one for each batch.
    """
    for offer, device in _sample(served):
        start, least_s = now + device.starts_in(now), offer.option_set.least(rows)
        if start + least_s > deadline:
            continue
        faster = [_fastest(batch, device) for batch in device.scheduled] if downgrade else None
        if not downgrade and start + device.scheduled_s + least_s > device.scheduled[-1].deadline + SUM_ROUNDING_S:
            continue
        points = device.insertion_points(now, faster)
        for option in offer.option_set.options:
            seconds = device.seconds(option, rows if budget_s is None else target_rows(option, device, rows, budget_s))
            for position in range(len(points) - 1, -1, -1):
                at, slack = points[position]
                if seconds <= slack + ROUNDING_S - margin_s and at + seconds <= deadline - margin_s:
                    return option, device, position, faster
    return None


def _sample(served: ServedClass) -> Iterator[tuple[ClassOffer, ScheduledDevice]]:
    """Yield some devices of the class that have scheduled batches.

    They are others each time, because to search all would cost too much.
    """
    candidates = served.candidates
    count = len(candidates)
    found = 0
    first = served.sample_from
    for i in range(count):
        offer, device = candidates[(first + i) % count]
        if device.scheduled:
            found += 1
            if found > SAMPLED_DEVICES:
                served.sample_from = (first + i) % count
                return
            yield offer, device
    if count:
        served.sample_from = (first + 1) % count


def _fastest(batch: ScheduledBatch, device: ScheduledDevice) -> ServingOption:
    rows, best = batch.rows, batch.option
    least = device.seconds(best, rows)
    for option in device.option_sets[batch.served.query_class].options:
        seconds = device.seconds(option, rows)
        if (option.max_rows >= rows or len(batch.queries) == 1) and seconds < least:
            best, least = option, seconds
    return best
