"""The stacks that a cluster may serve with: the default, and the papers'.

A name means the same live and simulated. A stack is chosen for the whole cluster. The control plane plans with its
strategy; cores switch to its binding and batch policy when they adopt a plan that names it. Others can only be
simulated (``scheduler/stacks``).
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from .published import papers
from .stack import DEFAULT, LATE, LATE_BINDING, Stack

#: the executing half of each paper: its ``STACKS``, batch ``POLICIES`` and ``ROUTERS``
PAPERS = [import_module(f"{papers.__name__}.{module.name}") for module in iter_modules(papers.__path__)]
#: by name, the default first
STACKS: dict[str, Stack] = {
    stack.name: stack
    for stack in (
        Stack(
            DEFAULT,
            "nereus",
            LATE,
            LATE_BINDING,
            "nereus",
            "Queries wait until a device is nearly free; then batch, variant and device are chosen together.",
        ),
        *(stack for paper in PAPERS for stack in paper.STACKS),
    )
}
#: the names, the default first
LIVE = tuple(STACKS)
