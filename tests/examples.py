"""How many examples a property gets that takes long, or that many parameters multiply."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

from tests.environment import FEW

#: as many times as many in the long form, whose profile has more than :data:`~tests.environment.FEW`
_MORE = 20


def examples(count: int, **more: Any) -> settings:
    """Settings for ``count`` examples, in the long form for 20 times as many; otherwise of the profile."""
    return settings(max_examples=count * (_MORE if settings.default.max_examples > FEW else 1), **more)
