"""What each group of identical devices can do for each application: the options that `nereus` chooses from.

A device dedicated to an *application* may run several of its variants: with every batch within SLO / 2, a query waits
for at most the batch under way and runs in the next one, whichever variants they use. So its time is divisible among
them at no loss, and what it can give is the concave hull over Eq. 5's points (rate, accuracy) of single variants.

A device shared by several applications goes by turns (see :mod:`.time_slices`): there each resident has a fixed number
of rows every turn gap.

Everything here follows from profiles, SLOs and weights, not from demand, so it is kept between solves: it is found
again as long as variants with the very same profiles are asked about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .capacity import dedicated_capacity, profile_on
from .groups import Group
from .problem import Application, Variant
from .time_slices import cycle_s

#: Points that serving one more weighted item is worth in the search, far above what accuracy can be: queries come
#: first. Floors come before all else.
SERVED = 1e4
FLOOR = 1e7


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """A variant on a device dedicated to its application. ``rate``: items/s of all the time that queries may use."""

    variant: Variant
    batch: int
    latency_s: float
    rate: float
    memory_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """A resident of a shared device: up to ``rows`` rows, in ``seconds``, once every turn gap; ``rate``: items/s."""

    variant: Variant
    rows: int
    seconds: float
    rate: float
    memory_bytes: int


@dataclass(frozen=True, eq=False)
class Card:
    """One application's options. ``offers`` by group, least accurate last, none dominated.

    ``prices`` (K): where the best use of any option changes, as points for an item of the application, ascending.
    ``dedicated`` (G x K): points/s that a device of a group earns beyond the price, at each price.
    """

    offers: tuple[tuple[Offer, ...], ...]
    prices: np.ndarray
    dedicated: np.ndarray


@dataclass(frozen=True, eq=False)
class TurnTable:
    """The turns that residents may have on a group's devices in one class of turn gaps, of all applications (J turns).

    ``owner``: index of the application. ``earns`` (J x K): points/s at each price of the owner's card, the last one
    repeated. ``seconds``: as a share of the cycle. ``memory``: as a share of the device's.
    """

    turns: tuple[Turn, ...]
    owner: np.ndarray
    earns: np.ndarray
    seconds: np.ndarray
    memory: np.ndarray


class Menu:
    """The options of all applications with demand, over groups of devices.

    Args:
        groups: devices that may host something.
        applications: those with demand.
        variants: all; excluded ones are left out.
        loaded_only: only what is loaded on some device of a group counts there.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        applications: Sequence[Application],
        variants: tuple[Variant, ...],
        loaded_only: bool = False,
    ):
        self.groups = list(groups)
        self.applications = list(applications)
        self._known = _known(variants)
        self._only = [frozenset().union(*(d.loaded for d in g.devices)) if loaded_only else None for g in self.groups]
        self._keys = tuple(
            (g.one.type, g.one.memory_bytes, g.one.available, only)
            for g, only in zip(self.groups, self._only, strict=True)
        )
        self.cards = [self._card(a) for a in self.applications]

    def _card(self, application: Application) -> Card:
        key = (application.id, application.slo_s, application.weight, self._keys)
        card = self._known.cards.get(key)
        if card is None:
            mine = self._known.by_application.get(application.id, ())
            card = self._known.cards[key] = _card(application, self.groups, self._only, mine)
        return card

    def variants(self, application: str) -> Sequence[Variant]:
        """The application's variants that may be placed."""
        return self._known.by_application.get(application, ())

    def turns(self, g: int, gap_s: float) -> TurnTable:
        """What devices of group ``g`` may hold in class ``gap_s``; perhaps nothing."""
        key = (tuple((a.id, a.slo_s, a.weight) for a in self.applications), self._keys, g, gap_s)
        table = self._known.turns.get(key)
        if table is None:
            able = self._only[g]
            turns = [
                _turns(a, self.groups[g], [v for v in self.variants(a.id) if able is None or v.id in able], gap_s)
                for a in self.applications
            ]
            table = self._known.turns[key] = _table(self.applications, self.cards, self.groups[g], turns, gap_s)
        return table


class _Known:
    """What was worked out about variants."""

    def __init__(self, variants: tuple[Variant, ...], signature: tuple):
        self.variants = variants
        self.signature = signature
        self.by_application: dict[str, list[Variant]] = {}
        for variant in variants:
            if not variant.excluded:
                self.by_application.setdefault(variant.application, []).append(variant)
        self.cards: dict[tuple, Card] = {}
        self.turns: dict[tuple, TurnTable] = {}


#: What is known about the latest variants. It goes by the identity of profiles, which are held here and never change.
_latest: list[_Known] = []
_KEPT = 4
#: Cards beyond which what is known is worked out anew: SLOs and weights are seldom changed, but may be for years.
_MOST_CARDS = 20_000


def _known(variants: tuple[Variant, ...]) -> _Known:
    signature = None
    for known in _latest:
        if len(known.cards) > _MOST_CARDS or len(known.turns) > _MOST_CARDS:
            continue
        if known.variants is variants:
            return known
        signature = signature or _signature(variants)
        if known.signature == signature:
            return known
    known = _Known(variants, signature or _signature(variants))
    _latest.insert(0, known)
    del _latest[_KEPT:]
    return known


def _signature(variants: tuple[Variant, ...]) -> tuple:
    return tuple(
        [
            (v.id, v.application, v.accuracy, v.excluded, tuple([(kind, id(p)) for kind, p in v.profiles.items()]))
            for v in variants
        ]
    )


def _card(
    application: Application,
    groups: Sequence[Group],
    only: Sequence[frozenset[str] | None],
    variants: Sequence[Variant],
) -> Card:
    weight = application.weight
    offers = tuple(
        _frontier(application, group, [v for v in variants if able is None or v.id in able])
        for group, able in zip(groups, only, strict=True)
    )
    accuracies = {v.accuracy * weight for v in variants}
    prices = {-SERVED * weight, -FLOOR * weight, *accuracies}
    for mine in offers:
        for i, one in enumerate(mine):
            for two in mine[i + 1 :]:
                if one.rate == two.rate:
                    continue
                # Where the faster option begins to earn more than the more accurate one.
                price = (
                    weight * (two.rate * two.variant.accuracy - one.rate * one.variant.accuracy) / (two.rate - one.rate)
                )
                if price > -SERVED * weight:
                    prices.add(price)
    ladder = np.array(sorted(prices))
    earns = np.zeros((len(groups), len(ladder)))
    for g, mine in enumerate(offers):
        if mine:
            rate = np.array([o.rate for o in mine])[:, None]
            value = np.array([o.variant.accuracy * weight for o in mine])[:, None]
            earns[g] = np.maximum(rate * (value - ladder), 0.0).max(axis=0)
    return Card(offers, ladder, earns)


def _frontier(application: Application, group: Group, variants: Sequence[Variant]) -> tuple[Offer, ...]:
    found = []
    for variant in variants:
        profile = profile_on(variant, group.one)
        capacity = dedicated_capacity(profile, application.slo_s) if profile is not None else None
        if capacity is not None:
            rate = capacity.rate * group.one.available
            found.append(Offer(variant, capacity.batch, capacity.latency_s, rate, profile.memory_bytes))
    # Where memory is short a variant that needs less of it is of use beside a faster and more accurate one.
    short = group.one.memory_bytes is not None
    found.sort(key=lambda o: (-o.variant.accuracy, -o.rate, o.memory_bytes))
    useful: list[Offer] = []
    for offer in found:
        rivals = (o for o in useful if o.rate * (1 + 1e-9) >= offer.rate)
        if not any(not short or o.memory_bytes <= offer.memory_bytes for o in rivals):
            useful.append(offer)
    return tuple(useful)


def _turns(application: Application, group: Group, variants: Sequence[Variant], gap_s: float) -> list[Turn]:
    """Useful turns of one application, quickest first: none is dominated in seconds, rate, accuracy and memory."""
    limit_s = min(gap_s, application.slo_s - gap_s, cycle_s(group, gap_s))
    found: list[Turn] = []
    for variant in variants:
        profile = profile_on(variant, group.one)
        if profile is None:
            continue
        longest = 0.0
        for rows, latency_s in profile.longest:
            # A turn may take fewer rows than its most; where those are slower, they are what must fit.
            longest = max(longest, latency_s)
            if longest > limit_s:
                break
            found.append(Turn(variant, rows, longest, rows / gap_s, profile.memory_bytes))
    found.sort(key=lambda t: (t.seconds, -t.variant.accuracy, -t.rate, t.memory_bytes))
    useful: list[Turn] = []
    for turn in found:
        if not any(
            other.rate >= turn.rate
            and other.variant.accuracy >= turn.variant.accuracy
            and other.memory_bytes <= turn.memory_bytes
            for other in useful
        ):
            useful.append(turn)
    return useful


def _table(
    applications: Sequence[Application], cards: Sequence[Card], group: Group, turns: list[list[Turn]], gap_s: float
) -> TurnTable:
    owner = np.array([q for q, mine in enumerate(turns) for _ in mine], dtype=int)
    flat = tuple(turn for mine in turns for turn in mine)
    widest = max(len(card.prices) for card in cards)
    earns = np.zeros((len(flat), widest))
    for j, (q, turn) in enumerate(zip(owner, flat, strict=True)):
        prices = cards[q].prices
        earns[j, : len(prices)] = turn.rate * np.maximum(turn.variant.accuracy * applications[q].weight - prices, 0.0)
    memory = group.one.memory_bytes
    return TurnTable(
        flat,
        owner,
        earns,
        np.array([t.seconds for t in flat]) / cycle_s(group, gap_s),
        np.array([t.memory_bytes / max(memory, 1) if memory is not None else 0.0 for t in flat]),
    )
