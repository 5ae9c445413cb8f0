"""The runs of a comparison: parsed, checked together, and labelled."""

from __future__ import annotations

from collections.abc import Sequence

from workers.dispatch.stack import Stack

from . import stacks
from .tables import ScenarioError

#: more runs than this in one comparison cannot be distinguished in a plot
MOST_RUNS = 20


def choose(named: Sequence[str], batching: str | None = None) -> dict[str, Stack]:
    """The stacks of a comparison by label, in the given order.

    Args:
        named: ``STACK`` or ``STACK:BATCHING``; what is left out comes from ``batching``, and otherwise from the stack.

    The label is the stack's name, with its batching where that was named.

    Raises:
        ScenarioError: with a line for each unknown name, and for each run that is named twice.
    """
    faults: list[str] = []
    chosen: dict[str, Stack] = {}
    for text in named:
        name, _, own = (part.strip() for part in text.partition(":"))
        label = f"{name}_{own}" if own else name
        if label in chosen:
            faults.append(f"stack: {text!r} is named twice")
        try:
            chosen[label] = stacks.choose(name, own or batching)
        except ScenarioError as error:
            faults += error.faults
    if len(named) > MOST_RUNS:
        faults.append(f"stack: at most {MOST_RUNS} runs can be compared, not {len(named)}")
    if faults:
        raise ScenarioError(faults)
    return chosen
