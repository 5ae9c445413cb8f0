"""The batch policies by their registered names, and the check of their options."""

from __future__ import annotations

from collections.abc import Mapping

from .base import BatchPolicy
from .clipper import ClipperPolicy
from .fixed import FixedPolicy
from .nereus import NereusPolicy
from .nexus import NexusPolicy
from .options import Option, check_options
from .proteus import ProteusPolicy

_POLICIES = {
    "nereus": NereusPolicy,
    "proteus": ProteusPolicy,
    "nexus": NexusPolicy,
    "clipper": ClipperPolicy,
    "fixed": FixedPolicy,
}


def names() -> list[str]:
    """The registered names, the default first."""
    return list(_POLICIES)


def options(name: str) -> dict[str, Option]:
    """The options that policy ``name`` takes.

    Raises:
        ValueError: no such policy.
    """
    if error := _unknown(name):
        raise ValueError(error)
    return dict(_POLICIES[name].OPTIONS)


def check(name: str, options: Mapping[str, float]) -> list[str]:
    """What is wrong with a policy's name or options, one line each, naming the field and the limit; [] when well."""
    if error := _unknown(name):
        return [error]
    return check_options(_POLICIES[name].OPTIONS, options)


def create(name: str, options: Mapping[str, float] | None = None) -> BatchPolicy:
    """A policy for one lane (a device's queue of one application); ``options`` as in its class's ``OPTIONS``.

    Raises:
        ValueError: what :func:`check` found.
    """
    given = {} if options is None else options
    if errors := check(name, given):
        raise ValueError("; ".join(errors))
    policy = _POLICIES[name]
    defaults = {key: option.default for key, option in policy.OPTIONS.items()}
    return policy(**{**defaults, **given})


def _unknown(name: object) -> str | None:
    if isinstance(name, str) and name in _POLICIES:
        return None
    return f"policy: unknown batch policy {name!r}; known: {', '.join(_POLICIES)}"
