"""From counts to concrete devices: which variants share which device, at what rates, keeping what is loaded.

The value of counts (see :mod:`.device_counts`) is reached by a plan in which, for each application, at most one device
mixes two of its variants: all options above the price p* at which the value is least are used in full, those below it
not at all, and those at p* as far as demand asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .device_counts import Board
from .device_options import Offer
from .groups import Group
from .problem import Variant

_NEAR = 1e-9


@dataclass(eq=False, slots=True)
class Seat:
    """A variant resident on a device to be. ``rate``: items/s. ``share``: of the device's time, 0 to 1."""

    variant: Variant
    rate: float
    batch: int
    share: float
    memory_bytes: int = 0


@dataclass(eq=False, slots=True)
class Bin:
    """A device to be: ``gap_s`` 0 where it is dedicated to one application."""

    gap_s: float
    seats: list[Seat] = field(default_factory=list)


def deal(board: Board) -> list[list[Bin]]:
    """The board's devices with their residents, by group. Shares and rates are those of the board's value, but where
    memory or the residents allowed keep two variants apart the faster one serves."""
    bins: list[list[Bin]] = [[] for _ in board.menu.groups]
    shared = [Bin(device.gap_s) for device in board.shared]
    for device, bin_ in zip(board.shared, shared, strict=True):
        bins[device.group].append(bin_)
    for q in range(len(board.menu.applications)):
        _deal_application(board, q, bins, shared)
    return [[b for b in mine if b.seats] for mine in bins]


def _deal_application(board: Board, q: int, bins: list[list[Bin]], shared: list[Bin]) -> None:
    menu, application = board.menu, board.menu.applications[q]
    card, weight = menu.cards[q], application.weight
    price = float(board.prices[q, int(board.table[q].argmin())])
    slack = max(abs(price), 1.0) * _NEAR
    turns = [
        (shared[i], turn) for i, device in enumerate(board.shared) for owner, turn, _ in device.residents if owner == q
    ]
    counts = board.dedicated[q]
    slow: list[Offer | None] = []
    fast: list[Offer | None] = []
    for g, offers in enumerate(card.offers):
        above, at = _sides(offers, weight, price, slack) if counts[g] else (None, None)
        slow.append(above)
        fast.append(at)
    full = sum(turn.rate for _, turn in turns if turn.variant.accuracy * weight > price + slack)
    full += sum(n * o.rate for n, o in zip(counts, slow, strict=True) if o is not None)
    extra = sum(turn.rate for _, turn in turns if abs(turn.variant.accuracy * weight - price) <= slack)
    extra += sum(
        n * (two.rate - (one.rate if one is not None else 0.0))
        for n, one, two in zip(counts, slow, fast, strict=True)
        if two is not None
    )
    missing = application.demand - full
    # Above what is asked for there is a surplus: everything is used as much less.
    part = min(1.0, max(0.0, missing / extra)) if extra > 0 else 0.0
    thin = min(1.0, application.demand / full) if full > 0 else 1.0
    for bin_, turn in turns:
        value = turn.variant.accuracy * weight
        if value > price + slack:
            rate = turn.rate * thin
        elif value >= price - slack:
            rate = turn.rate * part
        else:
            continue
        if rate > 0:
            bin_.seats.append(Seat(turn.variant, float(rate), turn.rows, turn.seconds / bin_.gap_s, turn.memory_bytes))
    # A switch from one variant to another takes whole devices first: only the last group touched has a mixed one.
    switching = [g for g, (one, two) in enumerate(zip(slow, fast, strict=True)) if one is not None and two is not None]
    wanted = part * sum(counts[g] * (fast[g].rate - slow[g].rate) for g in switching)
    for g, count in enumerate(counts):
        if not count:
            continue
        one, two = slow[g], fast[g]
        if one is not None and two is not None:
            step = two.rate - one.rate
            switched = min(count, wanted / step) if step > 0 else 0.0
            wanted -= switched * step
            bins[g] += _mixed(menu.groups[g], one, two, int(count), switched, thin)
        elif two is not None:
            bins[g] += [_alone(menu.groups[g], two, part) for _ in range(count)]
        elif one is not None:
            bins[g] += [_alone(menu.groups[g], one, thin) for _ in range(count)]


def employ_idle(board: Board) -> None:
    """Dedicate each device without any use to the application that is busiest, if it can serve it as accurately there.

    That serves no more and no better, but halves queues."""
    menu, free = board.menu, board.free()
    if not free.any():
        return
    capacity = np.zeros(len(menu.applications))
    each = np.zeros((len(menu.applications), len(menu.groups)))
    for q, (application, card) in enumerate(zip(menu.applications, menu.cards, strict=True)):
        price = float(board.prices[q, int(board.table[q].argmin())])
        slack = max(abs(price), 1.0) * _NEAR
        for g, offers in enumerate(card.offers):
            one, two = _sides(offers, application.weight, price, slack) if offers else (None, None)
            each[q, g] = max((o.rate for o in (one, two) if o is not None), default=0.0)
        capacity[q] = float(each[q] @ board.dedicated[q])
        for device in board.shared:
            for owner, turn, _ in device.residents:
                if owner == q and turn.variant.accuracy * application.weight >= price - slack:
                    capacity[q] += turn.rate
    demand = np.array([a.demand for a in menu.applications])
    for g in range(len(free)):
        for _ in range(free[g]):
            load = np.where(each[:, g] > 0, demand / np.maximum(capacity, 1e-12), -1.0)
            q = int(load.argmax())
            if load[q] <= 0:
                break
            board.dedicate(q, g)
            capacity[q] += each[q, g]


def _sides(offers: Sequence[Offer], weight: float, price: float, slack: float) -> tuple[Offer | None, Offer | None]:
    """The options that earn most just above the price, and just below it where that is another one. Above the price
    none may earn anything."""
    best = max(offer.rate * (offer.variant.accuracy * weight - price) for offer in offers)
    near = [
        offer
        for offer in offers
        if offer.rate * (offer.variant.accuracy * weight - price) >= best - offer.rate * slack
        and offer.variant.accuracy * weight >= price - slack
    ]
    if not near:
        return None, None
    above = [offer for offer in near if offer.variant.accuracy * weight > price + slack]
    one = min(above, key=lambda o: o.rate, default=None)
    two = max(near, key=lambda o: o.rate)
    return one, two if two is not one else None


def _alone(group: Group, offer: Offer, part: float) -> Bin:
    available = group.one.available
    part = float(part)
    return Bin(0.0, [Seat(offer.variant, offer.rate * part, offer.batch, part * available, offer.memory_bytes)])


def _mixed(group: Group, one: Offer, two: Offer, count: int, switched: float, thin: float) -> list[Bin]:
    """``switched`` of ``count`` devices' time goes to ``two``, the faster one."""
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
            made.append(Bin(0.0, first.seats + second.seats))
        else:
            # The faster one does what both would have done, in less than the whole of its time.
            rate = (one.rate * (1 - share) + two.rate * share) * thin
            made.append(_alone(group, two, rate / two.rate))
    return made
