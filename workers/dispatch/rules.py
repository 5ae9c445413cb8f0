"""What the dispatcher does, as far as it can be chosen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """What the dispatcher does beyond booking in order; to take a part away shows what it is worth.

    ``prices``: time costs accuracy under pressure. ``waiting``: a batch waits for company. ``squeezing``: a query that
    fits nowhere is fitted in front of others, or by hurrying them. ``stealing``: idle devices take over what waits
    elsewhere. ``upgrades``: the variant is chosen again when a batch starts."""

    prices: bool = True
    waiting: bool = True
    squeezing: bool = True
    stealing: bool = True
    upgrades: bool = True
