"""How many examples a costly property gets."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

from tests.environment import FEW

#: as many times as many in the long form, whose profile has more than :data:`~tests.environment.FEW`
_MORE = 20


def examples(count: int, **more: Any) -> settings:
    """Settings of the profile, with a number of examples.

    Args:
        count: examples in the short form; the long form has 20 times as many.
    """
    return settings(max_examples=count * (_MORE if settings.default.max_examples > FEW else 1), **more)
