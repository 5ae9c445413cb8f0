"""How many examples a costly property gets."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

from tests.environment import FEW

#: as many times as many in the long form, whose profile has more than :data:`~tests.environment.FEW`
_MORE = 20


def examples(count: int, **more: Any) -> settings:
    """The profile's settings with ``count`` examples in the short form and 20 times as many in the long form."""
    return settings(max_examples=count * (_MORE if settings.default.max_examples > FEW else 1), **more)
