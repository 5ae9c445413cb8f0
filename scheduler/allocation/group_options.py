"""Group options: what each group of identical devices can do for each application.

A device dedicated to an *application* may run several of its variants: with every batch within SLO / 2, a query waits
for at most the running batch and runs in the next one, whichever variants they use. Its time is divisible among them
without loss, so its capacity is the concave hull over Eq. 5's points (rate, accuracy) of single variants.

A device shared by several applications runs in time slices: each resident has a fixed number of rows in each revisit
period D. A query that just missed a slice waits at most D and then runs in a batch of latency l, in time when D + l is
within the SLO. So D admits applications with SLO > D, with batches of at most min(D, SLO - D). The period holds by
construction: the slices of all residents, each with its maximum rows, add up to at most D.

Options follow from profiles, SLOs and weights, not from demand, so they are cached between solves, by the identity of
profiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .capacity import dedicated_capacity, profile_on
from .groups import IdenticalDevices
from .problem import ApplicationDemand, CandidateVariant

#: Points for each weighted item served, above any accuracy: serving comes first, but a point of accuracy of all items
#: comes before a thousandth of them, which is far below what demand is known to.
SERVED = 1e3
#: Points for each weighted item below a floor: floors come before all else.
FLOOR = 1e9
#: Revisit periods tried, as fractions of the SLOs.
FRACTIONS = (1 / 2, 2 / 3, 4 / 5)
#: Largest number of revisit periods tried.
MAX_PERIODS = 8
#: Share of a shared device's available time that slices may fill; the rest is overhead between slices.
FILL = 0.95


@dataclass(frozen=True, slots=True, eq=False)
class OperatingPoint:
    """A variant on a dedicated device; ``rate``: items/s of all the time for queries."""

    variant: CandidateVariant
    batch: int
    latency_s: float
    rate: float
    memory_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class TimeSlice:
    """A resident of a shared device, which runs up to ``rows`` in each revisit period, for ``seconds`` at most."""

    variant: CandidateVariant
    rows: int
    seconds: float
    rate: float
    memory_bytes: int


@dataclass(frozen=True, eq=False)
class ApplicationOptions:
    """One application's options over G groups.

    Attributes:
        operating_points: by group, least accurate last, none dominated.
        prices: (K) break points, ascending: prices of an item (points) at which the best use of an option changes.
        dedicated: (G x K) points/s that a device of a group earns beyond the price, at each price.
    """

    operating_points: tuple[tuple[OperatingPoint, ...], ...]
    prices: np.ndarray
    dedicated: np.ndarray


@dataclass(frozen=True, eq=False)
class SliceTable:
    """The J slices that residents may have on a group's devices, those of all applications, in one revisit period.

    Attributes:
        owner: (J) index of the application.
        earns: (J x K) points/s at each of the owner's prices, the last one repeated.
        seconds, memory: (J) as shares of the slice budget, and of the device's memory.
    """

    slices: tuple[TimeSlice, ...]
    owner: np.ndarray
    earns: np.ndarray
    seconds: np.ndarray
    memory: np.ndarray


class GroupOptions:
    """The options of all applications with demand, over groups of usable devices; excluded variants are left out.

    ``loaded_only``: only what is loaded on some device of a group counts there.
    """

    def __init__(
        self,
        groups: Sequence[IdenticalDevices],
        applications: Sequence[ApplicationDemand],
        variants: tuple[CandidateVariant, ...],
        loaded_only: bool = False,
    ):
        self.groups = list(groups)
        self.applications = list(applications)
        self._cached = _cached(variants)
        self._only = [frozenset().union(*(d.loaded for d in g.devices)) if loaded_only else None for g in self.groups]
        self._keys = tuple(
            (g.one.type, g.one.memory_bytes, g.one.available, only)
            for g, only in zip(self.groups, self._only, strict=True)
        )
        self.by_application = [self._application_options(a) for a in self.applications]

    def _application_options(self, application: ApplicationDemand) -> ApplicationOptions:
        key = (application.id, application.slo_s, application.weight, self._keys)
        own = self._cached.by_application.get(key)
        if own is None:
            mine = self._cached.variants_of.get(application.id, ())
            own = self._cached.by_application[key] = _application_options(application, self.groups, self._only, mine)
        return own

    def variants(self, application: str) -> Sequence[CandidateVariant]:
        return self._cached.variants_of.get(application, ())

    def slices(self, g: int, revisit_s: float) -> SliceTable:
        key = (tuple((a.id, a.slo_s, a.weight) for a in self.applications), self._keys, g, revisit_s)
        table = self._cached.slices.get(key)
        if table is None:
            allowed = self._only[g]
            slices = [
                _time_slices(
                    a, self.groups[g], [v for v in self.variants(a.id) if allowed is None or v.id in allowed], revisit_s
                )
                for a in self.applications
            ]
            table = self._cached.slices[key] = _table(
                self.applications, self.by_application, self.groups[g], slices, revisit_s
            )
        return table


def revisit_periods(applications: list[ApplicationDemand]) -> list[float]:
    """Seconds, ascending; the smallest admits every application."""
    periods = sorted({round(a.slo_s * fraction, 6) for a in applications for fraction in FRACTIONS})
    if len(periods) <= MAX_PERIODS:
        return periods
    return [periods[round(i * (len(periods) - 1) / (MAX_PERIODS - 1))] for i in range(MAX_PERIODS)]


def slice_budget_s(group: IdenticalDevices, revisit_s: float) -> float:
    return FILL * group.one.available * revisit_s


class _OptionCache:
    def __init__(self, variants: tuple[CandidateVariant, ...]):
        #: kept alive, since their profiles' identities name the cache
        self.variants = variants
        self.variants_of: dict[str, list[CandidateVariant]] = {}
        for variant in variants:
            if not variant.excluded:
                self.variants_of.setdefault(variant.application, []).append(variant)
        self.by_application: dict[tuple, ApplicationOptions] = {}
        self.slices: dict[tuple, SliceTable] = {}


#: Caches for the latest sets of variants, the last one used last, and how many there are at most.
_latest: dict[tuple, _OptionCache] = {}
_KEPT = 4
#: Entries at which a cache is replaced: SLOs and weights change rarely, but a process may run for years.
_MAX_ENTRIES = 20_000


def _cached(variants: tuple[CandidateVariant, ...]) -> _OptionCache:
    signature = tuple(
        [
            (v.id, v.application, v.accuracy, v.excluded, tuple([(kind, id(p)) for kind, p in v.profiles.items()]))
            for v in variants
        ]
    )
    cache = _latest.pop(signature, None)
    if cache is None or max(len(cache.by_application), len(cache.slices)) > _MAX_ENTRIES:
        cache = _OptionCache(variants)
    _latest[signature] = cache
    for oldest in list(_latest)[:-_KEPT]:
        _latest.pop(oldest, None)
    return cache


def _application_options(
    application: ApplicationDemand,
    groups: Sequence[IdenticalDevices],
    only: Sequence[frozenset[str] | None],
    variants: Sequence[CandidateVariant],
) -> ApplicationOptions:
    weight = application.weight
    operating_points = tuple(
        _frontier(application, group, [v for v in variants if allowed is None or v.id in allowed])
        for group, allowed in zip(groups, only, strict=True)
    )
    accuracies = {v.accuracy * weight for v in variants}
    prices = {-SERVED * weight, -FLOOR * weight, *accuracies}
    for mine in operating_points:
        for i, one in enumerate(mine):
            for two in mine[i + 1 :]:
                if one.rate == two.rate:
                    continue
                # The price at which the faster point earns as much as the more accurate one.
                price = (
                    weight * (two.rate * two.variant.accuracy - one.rate * one.variant.accuracy) / (two.rate - one.rate)
                )
                if price > -SERVED * weight:
                    prices.add(price)
    ladder = np.array(sorted(prices))
    earns = np.zeros((len(groups), len(ladder)))
    for g, mine in enumerate(operating_points):
        if mine:
            rate = np.array([o.rate for o in mine])[:, None]
            value = np.array([o.variant.accuracy * weight for o in mine])[:, None]
            earns[g] = np.maximum(rate * (value - ladder), 0.0).max(axis=0)
    return ApplicationOptions(operating_points, ladder, earns)


def _frontier(
    application: ApplicationDemand, group: IdenticalDevices, variants: Sequence[CandidateVariant]
) -> tuple[OperatingPoint, ...]:
    found = []
    for variant in variants:
        profile = profile_on(variant, group.one)
        capacity = dedicated_capacity(profile, application.slo_s) if profile is not None else None
        if capacity is not None:
            rate = capacity.rate * group.one.available
            found.append(OperatingPoint(variant, capacity.batch, capacity.latency_s, rate, profile.memory_bytes))
    # With limited memory a smaller variant may be useful beside a faster and more accurate one.
    short = group.one.memory_bytes is not None
    found.sort(key=lambda o: (-o.variant.accuracy, -o.rate, o.memory_bytes))
    useful: list[OperatingPoint] = []
    for point in found:
        rivals = (o for o in useful if o.rate * (1 + 1e-9) >= point.rate)
        if not any(not short or o.memory_bytes <= point.memory_bytes for o in rivals):
            useful.append(point)
    return tuple(useful)


def _time_slices(
    application: ApplicationDemand, group: IdenticalDevices, variants: Sequence[CandidateVariant], revisit_s: float
) -> list[TimeSlice]:
    limit_s = min(revisit_s, application.slo_s - revisit_s, slice_budget_s(group, revisit_s))
    found: list[TimeSlice] = []
    for variant in variants:
        profile = profile_on(variant, group.one)
        if profile is None:
            continue
        longest = 0.0
        for rows, latency_s in profile.longest:
            # A slice may run fewer rows than its maximum; where those are slower, they must fit.
            longest = max(longest, latency_s)
            if longest > limit_s:
                break
            found.append(TimeSlice(variant, rows, longest, rows / revisit_s, profile.memory_bytes))
    found.sort(key=lambda t: (t.seconds, -t.variant.accuracy, -t.rate, t.memory_bytes))
    useful: list[TimeSlice] = []
    for slice_ in found:
        if not any(
            other.rate >= slice_.rate
            and other.variant.accuracy >= slice_.variant.accuracy
            and other.memory_bytes <= slice_.memory_bytes
            for other in useful
        ):
            useful.append(slice_)
    return useful


def _table(
    applications: Sequence[ApplicationDemand],
    by_application: Sequence[ApplicationOptions],
    group: IdenticalDevices,
    slices: list[list[TimeSlice]],
    revisit_s: float,
) -> SliceTable:
    owner = np.array([q for q, mine in enumerate(slices) for _ in mine], dtype=int)
    flat = tuple(slice_ for mine in slices for slice_ in mine)
    widest = max(len(own.prices) for own in by_application)
    earns = np.zeros((len(flat), widest))
    for j, (q, slice_) in enumerate(zip(owner, flat, strict=True)):
        prices = by_application[q].prices
        earns[j, : len(prices)] = slice_.rate * np.maximum(
            slice_.variant.accuracy * applications[q].weight - prices, 0.0
        )
    memory = group.one.memory_bytes
    return SliceTable(
        flat,
        owner,
        earns,
        np.array([t.seconds for t in flat]) / slice_budget_s(group, revisit_s),
        np.array([t.memory_bytes / max(memory, 1) if memory is not None else 0.0 for t in flat]),
    )
