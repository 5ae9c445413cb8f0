"""The batch policies of published stacks, by name."""

from __future__ import annotations

from collections.abc import Callable

from .base import BatchPolicy
from .clipper import ClipperPolicy
from .nexus import NexusPolicy
from .proteus import ProteusPolicy

_POLICIES: dict[str, Callable[[], BatchPolicy]] = {
    "proteus": ProteusPolicy,
    "nexus": NexusPolicy,
    "clipper": ClipperPolicy,
}


def names() -> list[str]:
    """All names."""
    return list(_POLICIES)


def create(name: str) -> BatchPolicy:
    """A policy for one lane (a device's queue of one application).

    Raises:
        ValueError: no policy has that name.
    """
    if name not in _POLICIES:
        raise ValueError(f"policy: unknown batch policy {name!r}; known: {', '.join(_POLICIES)}")
    return _POLICIES[name]()
