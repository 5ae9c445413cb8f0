"""What is loaded on a simulated device, and what is to be loaded next. No clock of its own."""

from __future__ import annotations

from collections.abc import Sequence


class Residents:
    """``loaded``: ready to run. ``loads``: still to be loaded, in this order. ``loading``: the load under way.

    A variant that was loaded stays until its place is needed; what the plan does not name goes first.

    Args:
        limit: residents at once; None: any number.
    """

    def __init__(self, limit: int | None):
        self.limit = limit
        self.loaded: dict[str, None] = {}
        self.loads: list[str] = []
        self.loading: str | None = None
        self.wanted: dict[str, None] = {}

    def warm(self) -> list[str]:
        """What is loaded, or will be when the load under way ends."""
        return [*self.loaded, *([] if self.loading is None else [self.loading])]

    def plan(self, wanted: Sequence[str]) -> None:
        """Take over what should be resident, most important first; no more of it than there may be."""
        self.wanted = dict.fromkeys(list(dict.fromkeys(wanted))[: self.limit])
        self.loads = [variant for variant in self.wanted if variant not in self.loaded and variant != self.loading]

    def begin(self, variant: str) -> None:
        """Begin a load of those due; what has to make room for it is gone at once."""
        self.loads.remove(variant)
        self.loading = variant
        if self.limit is not None:
            for variant in list(self.loaded):
                if len(self.loaded) < self.limit:
                    break
                if variant not in self.wanted:
                    del self.loaded[variant]

    def ended(self) -> None:
        """The load under way has ended."""
        variant, self.loading = self.loading, None
        if self.limit is None or len(self.loaded) < self.limit:
            self.loaded[variant] = None
