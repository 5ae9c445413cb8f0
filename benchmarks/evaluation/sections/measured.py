"""Sections that another benchmark measures, live and not simulated.

Such a module offers ``measure(quick: bool)`` and may offer ``render(measured) -> str`` (Markdown); without it the
measurement must be a sequence of rows (mappings or dataclasses), which become a table.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

from ..page import table
from .common import joined


def rendered(module: str, quick: bool, otherwise: str, misses: Callable[[Any], list[str]] | None = None) -> str:
    """The measurement's description and its figures; a visible note with ``otherwise`` where there is no module.

    ``misses``: tells what of the targets the measurement misses, a phrase each."""
    if importlib.util.find_spec(module) is None:
        return f"**Left out**: there is no `{module}`, so {otherwise}."
    found = importlib.import_module(module)
    measured = found.measure(quick)
    body = found.render(measured) if hasattr(found, "render") else _rows(measured)
    text = " ".join((found.__doc__ or "").split("\n\n")[0].split())
    missed = misses(measured) if misses is not None else []
    verdict = f"This **misses** what was asked: {'; '.join(missed)}." if missed else ""
    return joined(text, f"`python -m {module}`", verdict, body)


def _rows(measured: Any) -> str:
    if not isinstance(measured, Sequence) or isinstance(measured, str):
        raise TypeError(f"measure() must return a sequence of rows, not {type(measured).__name__}")
    rows: list[Mapping[str, Any]] = [asdict(row) if is_dataclass(row) else row for row in measured]
    head = list(dict.fromkeys(key for row in rows for key in row))
    return table(
        [key.replace("_", " ") for key in head],
        [[f"{row[key]:.4g}" if isinstance(row.get(key), float) else row.get(key, "") for key in head] for row in rows],
    )
