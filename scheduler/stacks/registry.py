"""The papers that are there."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from .paper import Paper

#: by folder
PAPERS: dict[str, Paper] = {
    module.name: import_module(f"{__package__}.{module.name}").PAPER
    for module in iter_modules([str(Path(__file__).parent)])
    if module.ispkg
}
STRATEGIES = {name: strategy for paper in PAPERS.values() for name, strategy in paper.strategies.items()}
#: stacks that only simulations run, by name
SIMULATED = {stack.name: stack for paper in PAPERS.values() for stack in paper.simulated}
#: strategies that place applications once, for good
PLACED_ONCE = frozenset().union(*(paper.placed_once for paper in PAPERS.values()))
#: of strategies that decide at each arrival; others plan by period and burst alone
TRIGGERS = {name: trigger for paper in PAPERS.values() for name, trigger in paper.triggers.items()}
