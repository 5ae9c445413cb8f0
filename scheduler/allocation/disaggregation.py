"""Disaggregation: from device counts to residents and their rates.

The value of counts (see :mod:`.device_counts`) is reached by a plan in which, for each application, at most one device
mixes two of its variants: all options above the price p* at which the value is least are used in full, those below it
not at all, and those at p* as far as demand asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from .device_counts import DeviceCounts
from .group_options import OperatingPoint
from .groups import IdenticalDevices
from .problem import Placement

_NEAR = 1e-9


@dataclass(eq=False, slots=True)
class DeviceContent:
    revisit_s: float
    placements: list[Placement] = field(default_factory=list)


def disaggregate(counts: DeviceCounts) -> list[list[DeviceContent]]:
    """Return the residents of each counted device by group, with the shares and rates of the counts' value.

    Where two variants do not fit on one device together, the faster one serves.
    """
    contents: list[list[DeviceContent]] = [[] for _ in counts.options.groups]
    shared = [DeviceContent(device.revisit_s) for device in counts.shared]
    for device, content in zip(counts.shared, shared, strict=True):
        contents[device.group].append(content)
    for q in range(len(counts.options.applications)):
        _disaggregate_application(counts, q, contents, shared)
    return [[content for content in mine if content.placements] for mine in contents]


def _disaggregate_application(
    counts: DeviceCounts, q: int, contents: list[list[DeviceContent]], shared: list[DeviceContent]
) -> None:
    options, application = counts.options, counts.options.applications[q]
    own, weight = options.by_application[q], application.weight
    price = float(counts.prices[q, int(counts.table[q].argmin())])
    slack = max(abs(price), 1.0) * _NEAR
    slices = [
        (shared[i], slice_)
        for i, device in enumerate(counts.shared)
        for owner, slice_, _ in device.residents
        if owner == q
    ]
    dedicated = counts.dedicated[q]
    slow: list[OperatingPoint | None] = []
    fast: list[OperatingPoint | None] = []
    for g, operating_points in enumerate(own.operating_points):
        above, at = _marginal_points(operating_points, weight, price, slack) if dedicated[g] else (None, None)
        slow.append(above)
        fast.append(at)
    full = sum(slice_.rate for _, slice_ in slices if slice_.variant.accuracy * weight > price + slack)
    full += sum(n * o.rate for n, o in zip(dedicated, slow, strict=True) if o is not None)
    extra = sum(slice_.rate for _, slice_ in slices if abs(slice_.variant.accuracy * weight - price) <= slack)
    extra += sum(
        n * (two.rate - (one.rate if one is not None else 0.0))
        for n, one, two in zip(dedicated, slow, fast, strict=True)
        if two is not None
    )
    missing = application.demand - full
    # With a surplus everything is used in proportion to the demand.
    part = min(1.0, max(0.0, missing / extra)) if extra > 0 else 0.0
    thin = min(1.0, application.demand / full) if full > 0 else 1.0
    for content, slice_ in slices:
        value = slice_.variant.accuracy * weight
        if value > price + slack:
            rate = slice_.rate * thin
        elif value >= price - slack:
            rate = slice_.rate * part
        else:
            continue
        if rate > 0:
            share = slice_.seconds / content.revisit_s
            content.placements.append(Placement("", slice_.variant.id, float(rate), slice_.rows, share))
    for g, added in _dedicated(options.groups, dedicated, slow, fast, part, thin):
        contents[g] += added


def _dedicated(
    groups: Sequence[IdenticalDevices],
    dedicated: Sequence[int],
    slow: Sequence[OperatingPoint | None],
    fast: Sequence[OperatingPoint | None],
    part: float,
    thin: float,
) -> Iterator[tuple[int, list[DeviceContent]]]:
    """By group, the contents of an application's dedicated devices.

    ``slow``, ``fast``: operating points above the price and at it; ``part``: share of the rate at the price that is
    needed, ``thin``: of that above it.
    """
    # A switch from one variant to another takes whole devices first: only the last group touched has a mixed one.
    switching = [g for g, (one, two) in enumerate(zip(slow, fast, strict=True)) if one is not None and two is not None]
    wanted = part * sum(dedicated[g] * (fast[g].rate - slow[g].rate) for g in switching)
    for g, count in enumerate(dedicated):
        if not count:
            continue
        one, two = slow[g], fast[g]
        if one is not None and two is not None:
            step = two.rate - one.rate
            switched = min(count, wanted / step) if step > 0 else 0.0
            wanted -= switched * step
            yield g, _mixed(groups[g], one, two, int(count), switched, thin)
        elif two is not None:
            yield g, [_alone(groups[g], two, part) for _ in range(count)]
        elif one is not None:
            yield g, [_alone(groups[g], one, thin) for _ in range(count)]


def use_idle_devices(counts: DeviceCounts) -> None:
    """Dedicate each unused device to the busiest application that it serves at the same accuracy.

    This serves no more items but shortens queues.
    """
    options, free = counts.options, counts.free()
    if not free.any():
        return
    capacity = np.zeros(len(options.applications))
    each = np.zeros((len(options.applications), len(options.groups)))
    for q, (application, own) in enumerate(zip(options.applications, options.by_application, strict=True)):
        price = float(counts.prices[q, int(counts.table[q].argmin())])
        slack = max(abs(price), 1.0) * _NEAR
        for g, operating_points in enumerate(own.operating_points):
            one, two = (
                _marginal_points(operating_points, application.weight, price, slack)
                if operating_points
                else (None, None)
            )
            each[q, g] = max((o.rate for o in (one, two) if o is not None), default=0.0)
        capacity[q] = float(each[q] @ counts.dedicated[q])
        for device in counts.shared:
            for owner, slice_, _ in device.residents:
                if owner == q and slice_.variant.accuracy * application.weight >= price - slack:
                    capacity[q] += slice_.rate
    demand = np.array([a.demand for a in options.applications])
    for g in range(len(free)):
        for _ in range(free[g]):
            load = np.where(each[:, g] > 0, demand / np.maximum(capacity, 1e-12), -1.0)
            q = int(load.argmax())
            if load[q] <= 0:
                break
            counts.dedicate(q, g)
            capacity[q] += each[q, g]


def _marginal_points(
    operating_points: Sequence[OperatingPoint], weight: float, price: float, slack: float
) -> tuple[OperatingPoint | None, OperatingPoint | None]:
    best = max(point.rate * (point.variant.accuracy * weight - price) for point in operating_points)
    near = [
        point
        for point in operating_points
        if point.rate * (point.variant.accuracy * weight - price) >= best - point.rate * slack
        and point.variant.accuracy * weight >= price - slack
    ]
    if not near:
        return None, None
    above = [point for point in near if point.variant.accuracy * weight > price + slack]
    one = min(above, key=lambda o: o.rate, default=None)
    two = max(near, key=lambda o: o.rate)
    return one, two if two is not one else None


def _alone(group: IdenticalDevices, point: OperatingPoint, part: float) -> DeviceContent:
    share = float(part) * group.one.available
    return DeviceContent(0.0, [Placement("", point.variant.id, point.rate * float(part), point.batch, share)])


def _mixed(
    group: IdenticalDevices, one: OperatingPoint, two: OperatingPoint, count: int, switched: float, thin: float
) -> list[DeviceContent]:
    if abs(switched - round(switched)) < 1e-6:
        switched = float(round(switched))
    fast, slow = int(np.floor(switched)), int(np.floor(count - switched))
    made = [_alone(group, two, thin) for _ in range(fast)] + [_alone(group, one, thin) for _ in range(slow)]
    if fast + slow < count:
        share = switched - fast
        device = group.one
        together = device.max_resident is None or device.max_resident >= 2
        if together and device.memory_bytes is not None:
            together = one.memory_bytes + two.memory_bytes <= device.memory_bytes
        if together:
            first, second = _alone(group, one, (1 - share) * thin), _alone(group, two, share * thin)
            made.append(DeviceContent(0.0, first.placements + second.placements))
        else:
            # The faster one serves what both would have served, in part of the time.
            rate = (one.rate * (1 - share) + two.rate * share) * thin
            made.append(_alone(group, two, rate / two.rate))
    return made
