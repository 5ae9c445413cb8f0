"""Policies by load: tables of which variant a device runs. Pure.

A table goes by the device's queue and the slack of its head. The control plane makes them
(``scheduler/stacks/ramsis``), and plans bring them along.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable
from dataclasses import dataclass
from operator import attrgetter, itemgetter

#: by waiting rows, from 1: (least slack of the head in seconds, value), ascending; the first one begins at 0
Steps = tuple[tuple[tuple[float, int], ...], ...]


@dataclass(frozen=True)
class LoadPolicy:
    """The table for an application's load of at most ``load`` rows/s.

    Attributes:
        steps: places of variants. Longer queues are taken for the longest one.
    """

    load: float
    steps: Steps

    def choose(self, rows: int, slack_s: float) -> int:
        by_slack = self.steps[min(rows, len(self.steps)) - 1]
        return by_slack[max(0, bisect_right(by_slack, slack_s, key=itemgetter(0)) - 1)][1]


@dataclass(frozen=True)
class PolicySet:
    """The policies of an application on a device type.

    Attributes:
        variants: the fastest first.
        policies: by load, ascending.
    """

    variants: tuple[Hashable, ...]
    policies: tuple[LoadPolicy, ...]

    def at(self, load: float) -> LoadPolicy | None:
        """Return the policy of the lowest load that is at least this one.

        Returns:
            None: the load is above all of them.
        """
        place = bisect_left(self.policies, load, key=attrgetter("load"))
        return self.policies[place] if place < len(self.policies) else None


def constant(load: float, variant: int) -> LoadPolicy:
    """The policy that runs one variant, whatever waits."""
    return LoadPolicy(load, (((0.0, variant),),))
