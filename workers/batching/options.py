"""Options of batch policies: typed, with limits, checked with errors that name the option and the limit."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """A number from ``low`` to ``high`` (both included). ``default`` None: unset, which ``help`` explains."""

    help: str
    low: float
    high: float
    default: float | None = None
    whole: bool = False

    def error(self, value: object) -> str | None:
        """What is wrong with ``value``, or None."""
        # bool is an int in Python, but true is no batch size. NaN and infinities fail the comparison.
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and self.low <= value <= self.high and (not self.whole or value == int(value)):
            return None
        kind = "a whole number" if self.whole else "a number"
        return f"must be {kind} from {self.low:g} to {self.high:g}, not {reprlib.repr(value)}"


def check_options(declared: Mapping[str, Option], options: object) -> list[str]:
    """Errors of ``options`` against what a policy declares, one line each; empty when all is well."""
    if not isinstance(options, Mapping):
        return [f"options: must be an object of numbers, not {type(options).__name__}"]
    errors = []
    for name, value in options.items():
        if name not in declared:
            known = ", ".join(declared) or "none"
            errors.append(f"options.{name}: unknown option; this policy takes: {known}")
        elif error := declared[name].error(value):
            errors.append(f"options.{name}: {error}")
    return errors
