"""The runs of a comparison: parsed, checked together, and labelled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from workers.dispatch.stack import Stack

from . import stacks
from .tables import ScenarioError

#: more runs than this in one comparison cannot be distinguished in a plot
MOST_RUNS = 20


def choose(named: Sequence[str], batching: str | None = None, routing: str | None = None) -> dict[str, Stack]:
    """The stacks of a comparison by label, in the given order.

    Args:
        named: ``STACK``, ``STACK:BATCHING`` or ``STACK:BATCHING:ROUTING``; what is left out or empty comes from
            ``batching`` and ``routing``, and otherwise from the stack.

    The label is the stack's name where it is unique, else all three names.

    Raises:
        ScenarioError: with a line for each unknown name, and for each run that is named twice.
    """
    faults: list[str] = []
    chosen: list[Stack] = []
    for text in named:
        parts = [part.strip() for part in text.split(":")]
        if len(parts) > 3 or not parts[0]:
            faults.append(f"stack: must be STACK, STACK:BATCHING or STACK:BATCHING:ROUTING, not {text!r}")
            continue
        name, own_batching, own_routing = (*parts, "", "")[:3]
        try:
            stack = stacks.choose(name, own_batching or batching, own_routing or routing)
        except ScenarioError as error:
            faults += error.faults
            continue
        if stack in chosen:
            faults.append(f"stack: {text!r} is the same run as one before it ({label(stack)})")
        chosen.append(stack)
    if len(named) > MOST_RUNS:
        faults.append(f"stack: at most {MOST_RUNS} runs can be compared, not {len(named)}")
    if faults:
        raise ScenarioError(faults)
    times = Counter(stack.name for stack in chosen)
    return {(stack.name if times[stack.name] == 1 else label(stack)): stack for stack in chosen}


def label(stack: Stack) -> str:
    """All three names, fit for a file's name."""
    return f"{stack.name}_{stack.batching}_{stack.routing}"
