"""What the papers' stacks are known for, simulated side by side."""

from __future__ import annotations

import pytest

from scheduler.simulation import simulate
from workers.dispatch import stacks

from .test_contract import busy_world

pytestmark = pytest.mark.wide


def test_few_stacks_are_for_serving():
    live = ("nereus", "proteus", "infaas-accuracy", "infaas-greedy", "clipper-ha", "ramsis", "infadapter")
    assert sorted(stacks.LIVE) == sorted(live)


STATIC = ("clipper-ht", "clipper-ha", "proteus-wo-ms")
MOVING = ("sommelier", "proteus-wo-mp", "infaas-accuracy", "proteus-wo-ab", "proteus-wo-qa")


def test_the_static_ones_keep_their_accuracy_and_the_others_give_it_way():
    used = {name: {v for v in simulate(busy_world(), name).record.variant if v >= 0} for name in STATIC + MOVING}
    good, fast = {0, 2}, {1, 3}
    assert used["clipper-ht"] == fast
    assert used["clipper-ha"] <= good and used["proteus-wo-ms"] <= good
    for name in MOVING:
        assert used[name] & fast and used[name] & good, name


def test_batches_of_one_are_batches_of_one():
    record = simulate(busy_world(), "proteus-wo-ab").record
    ends: dict[tuple[float, int], int] = {}
    for when, v in zip(record.answered, record.variant, strict=True):
        if v >= 0:
            ends[when, v] = ends.get((when, v), 0) + 1
    # Three devices may end at the same moment, one row each.
    assert max(ends.values()) <= 3
