"""The batch policies by name that a simulation can have: those that serve live, and one to compare with."""

from __future__ import annotations

from workers.dispatch.published.batching import policies
from workers.dispatch.published.batching.base import BatchPolicy

from .relief import NereusPolicy

NEREUS = "nereus"


def names() -> list[str]:
    """All names, the default first."""
    return [NEREUS, *policies.names()]


def create(name: str) -> BatchPolicy:
    """A policy for one lane (a device's queue of one application).

    Raises:
        ValueError: no policy has that name.
    """
    return NereusPolicy() if name == NEREUS else policies.create(name)
