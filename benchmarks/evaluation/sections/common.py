"""Parts that several sections share.

They include the stacks that are compared, and the table of Fig. 4's quantities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

from ..page import number, percent, table
from ..runs import Case, Outcome
from ..worlds import World

#: the published systems as Section 6.1.1 of Ahmad et al. (ASPLOS '24) defines them, Proteus, and the live default
STACKS = ("clipper-ht", "clipper-ha", "sommelier", "infaas-accuracy", "proteus", "nereus")

HEAD = ("stack", "violations / effective accuracy", "max drop, 10 s", "p99 ms", "loads")


def of(world: World, strategies: Sequence[str] = STACKS) -> dict[str, Case]:
    """A case for each strategy with its own batching and routing, by its name."""
    return {name: Case(world, name) for name in strategies}


def quantities(outcomes: Mapping[str, Outcome]) -> str:
    """A table with a row for each label; the section's CSV file has all figures."""
    rows = []
    for label, outcome in outcomes.items():
        s = outcome.summary
        rows.append(
            (
                f"`{label}`", both(outcome), number(s["max_accuracy_drop_10s"], 2), number(s["p99_latency_ms"], 0),
                f"{s['loads']:,}",
            )
        )  # fmt: skip
    return table(HEAD, rows)


def both(outcome: Outcome) -> str:
    """Violations and accuracy in one cell, with half of their range over seeds."""
    ratio, accuracy = "violation_ratio", "effective_accuracy"
    cell = f"{percent(outcome.summary[ratio])} / {number(outcome.summary[accuracy], 2)}"
    if not outcome.spread:
        return cell
    return f"{cell} (± {percent(outcome.spread[ratio], 2)} / {number(outcome.spread.get(accuracy), 2)})"


def compared(corner: str, found: Mapping[str, Mapping[str, Outcome]], shown: Callable[[Outcome], str] = both) -> str:
    """A table of outcomes by row and column; "No results." without any."""
    columns = list(dict.fromkeys(label for some in found.values() for label in some))
    if not columns:
        return "No results."
    rows = [(row, *(shown(some[one]) if one in some else "" for one in columns)) for row, some in found.items()]
    return table((corner, *(f"`{one}`" for one in columns)), rows)


def throughput(summary: Mapping[str, float]) -> float | None:
    """Queries/s answered in time, over the whole run."""
    return summary["in_time"] / summary["duration_s"] if summary["duration_s"] else None


def cut_short(outcomes: Mapping[str, Outcome]) -> str:
    """Return a note on plans for which a search was ended by its time limit.

    Such figures may differ from machine to machine. "" where there are none.
    """
    found = {label: o.summary["solves_cut_short"] for label, o in outcomes.items() if o.summary["solves_cut_short"]}
    if not found:
        return ""
    counts = ", ".join(f"`{label}` {count} of {outcomes[label].summary['solves']}" for label, count in found.items())
    return f"Plans for which a search was ended by its time limit: {counts}."


#: a paper's sentence with its section or figure, what was found here, and one of reproduced, refuted and not
#: comparable, with a reason where that is not plain
Claim = tuple[str, str, str]


def claimed(claims: Iterable[Claim], paper: str) -> str:
    """The claims of a paper beside what was found; "" where there are none."""
    rows = list(claims)
    return table((f"claims of {paper}", "found", "verdict"), rows) if rows else ""


def verdict(holds: bool) -> str:
    return "reproduced" if holds else "refuted"


def joined(*parts: str) -> str:
    """The paragraphs that are not empty."""
    return "\n\n".join(part for part in parts if part)


def measured(module: ModuleType, rows: Any, render: Callable[[Any], str], claims: str = "") -> str:
    """Return a section that another benchmark measures.

    It has the first paragraph of the module's docstring, the command, the figures and the papers' claims.
    """
    text, command = " ".join(module.__doc__.split("\n\n")[0].split()), module.__name__.replace(".", " ")
    return joined(text, f"`python -m {command}`", render(rows), claims)
