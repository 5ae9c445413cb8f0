"""Errors of input and of state that services and inspections raise.

Does not import Django: :mod:`registry.api.problems` is the one place that turns them into responses. Only :class:`Busy`
and :class:`NoSpace` are worth retrying unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class InputFault(NamedTuple):
    """One fault: its place (``file.inputs.x.shape``), and what it is."""

    field: str
    detail: str


class InvalidInput(Exception):
    """The input breaks rules; ``faults`` has every one that was found."""

    def __init__(self, faults: Iterable[InputFault]):
        self.faults = [InputFault(*fault) for fault in faults]
        super().__init__("; ".join(f"{fault.field}: {fault.detail}" for fault in self.faults))


def invalid(field: str, detail: str) -> InvalidInput:
    return InvalidInput([InputFault(field, detail)])


class Conflict(Exception):
    """The input is fine, but the present state forbids it, by ``field`` maybe."""

    def __init__(self, detail: str, field: str | None = None):
        self.detail = detail
        self.field = field
        super().__init__(detail)


class UploadTooLarge(Exception):
    """More bytes than ``limit`` for ``field``."""

    def __init__(self, field: str, limit: int, setting: str = ""):
        self.field = field
        self.limit = limit
        suffix = f", set by {setting}" if setting else ""
        self.detail = f"is larger than the limit of {limit} bytes ({limit / 2**20:g} MiB{suffix})"
        super().__init__(f"{field}: {self.detail}")


class Busy(Exception):
    """Other work prevents this now; retry after ``retry_after_s``."""

    def __init__(self, detail: str, retry_after_s: int):
        self.detail = detail
        self.retry_after_s = retry_after_s
        super().__init__(detail)


class TooSlow(Exception):
    """The sender of a body is too slow."""


class NoSpace(Exception):
    """The disk under the model store is full."""
