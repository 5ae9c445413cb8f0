"""Divides CPU cores as an operator wrote it: ``2x1`` or ``0-1;2,3``. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from .environ import SettingsError

VARIABLE = "NEREUS_CPU_DEVICES"


def partition(
    spec: str, usable: Sequence[int], package_of: Mapping[int, int], named: str = VARIABLE
) -> list[tuple[int, ...]]:
    """CPU cores by device.

    Args:
        spec: ``none``, ``COUNTxCORES``, or core lists such as ``0-1;2,3``, one a device; not ``auto``.
        usable: the cores that this process may run on, best first (``COUNTxCORES`` takes them in this order, one
            package after the other, so that no device spans two packages unless it must).
        package_of: physical package by core.
        named: what the errors call ``spec``.

    Raises:
        SettingsError: a core is named twice or cannot be used, or there are too few.
    """
    if spec == "none":
        return []
    by_package: dict[int, list[int]] = {}
    for core in usable:
        by_package.setdefault(package_of.get(core, 0), []).append(core)
    if match := re.fullmatch(r"(\d+)x(\d+)", spec):
        return _equal_parts(
            f"{named}={spec!r}", int(match[1]), int(match[2]), [cores for _, cores in sorted(by_package.items())]
        )
    return _listed(f"{named}={spec!r}", spec, set(usable))


def _equal_parts(said: str, count: int, size: int, groups: list[list[int]]) -> list[tuple[int, ...]]:
    available = sum(len(group) for group in groups)
    if count * size > available:
        raise SettingsError(
            [
                f"{said}: asks for {count * size} cores ({count} devices with {size} each), but only "
                f"{available} can be used"
            ]
        )
    parts: list[tuple[int, ...]] = []
    left: list[int] = []
    for group in groups:
        whole = len(group) // size * size
        parts += [tuple(sorted(group[i : i + size])) for i in range(0, whole, size)]
        left += group[whole:]
    parts += [tuple(sorted(left[i : i + size])) for i in range(0, len(left) // size * size, size)]
    return parts[:count]


def _listed(said: str, spec: str, usable: set[int]) -> list[tuple[int, ...]]:
    problems, taken, parts = [], set(), []
    for part in spec.split(";"):
        cores: set[int] = set()
        for piece in part.split(","):
            first, _, last = piece.partition("-")
            low, high = int(first), int(last or first)
            if low > high:
                problems.append(f"{said}: the range {piece} runs backwards")
                continue
            if high > max(usable):
                # Said without walking through the range, which may be absurdly long.
                problems.append(f"{said}: core {high} is not among the usable cores {ranges(usable)}")
                continue
            cores |= set(range(low, high + 1))
        problems += [
            f"{said}: core {core} is not among the usable cores {ranges(usable)}" for core in sorted(cores - usable)
        ]
        problems += [f"{said}: core {core} is in two devices" for core in sorted(cores & taken)]
        taken |= cores
        parts.append(tuple(sorted(cores)))
    if problems:
        raise SettingsError(problems)
    return parts


def ranges(cores: Iterable[int]) -> str:
    """Cores as an operator writes them: 0-3,6."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
