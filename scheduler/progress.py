"""Reports that planning goes on, though it may take longer than its time limit.

A strategy finishes a step that it began, such as a policy, whatever its limit: on a slow or busy box a plan may take
minutes. It reports at each step, and within long ones, so that its process is not taken for hung.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

_listener: ContextVar[Callable[[], None] | None] = ContextVar("listener", default=None)


def report_to(listener: Callable[[], None]) -> None:
    _listener.set(listener)


def report() -> None:
    listener = _listener.get()
    if listener is not None:
        listener()
