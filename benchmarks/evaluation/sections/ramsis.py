"""RAMSIS' world: constant loads and its Twitter trace on 60 workers."""

from __future__ import annotations

from .. import ramsis as world
from ..page import Context, number, percent, table
from ..ramsis import PUBLISHED, TWITTER
from ..runs import Case, Outcome
from ..worlds import World
from .common import cut_short, joined, of

NAME = "ramsis"
TITLE = "RAMSIS' world: constant loads and a Twitter trace"
KNOWN_LOAD = "ramsis-known-load"
STACKS = ("ramsis", KNOWN_LOAD, "ramsis-by-decisions", "jellyfish+", "modelswitching", "nereus")
#: on the trace, which takes long
ON_TRACE = ("ramsis", "jellyfish+", "modelswitching", "nereus")


def _worlds(context: Context) -> dict[str, World]:
    return world.worlds(context.data.parent / "ramsis", context.runner.folder / "ramsis", context.quick)


def _cases(context: Context) -> dict[str, dict[str, Case]]:
    every, found = _worlds(context), {}
    for name, one in every.items():
        if name == TWITTER:
            found[name] = of(one, ON_TRACE)
        elif not name.endswith(world.KNOWN):
            measured = of(one, [stack for stack in STACKS if stack != KNOWN_LOAD])
            found[name] = {**measured, KNOWN_LOAD: Case(every[f"{name}{world.KNOWN}"], KNOWN_LOAD)}
    return found


def cases(context: Context) -> list:
    return [case for some in _cases(context).values() for case in some.values()]


def body(context: Context) -> str:
    found = {name: context.outcomes(some) for name, some in _cases(context).items()}
    every = {f"{stack}, {name}": outcome for name, some in found.items() for stack, outcome in some.items()}
    return joined(
        context.left_out(cases(context)),
        f"{world.WORKERS} identical workers, {world.CONSTANT_S} s of Poisson arrivals at constant loads and the "
        f"published Twitter trace, an SLO of {world.SLO_MS} ms, the 26 published profiles with the 95th percentile as "
        "the exact run time of a batch. Accuracies are of ImageNet, over queries in time. Every stack measures the "
        "load itself, but `ramsis-known-load`, which has a policy for the true one alone, as the paper assumes at "
        "constant loads; queries that cannot be in time are refused. The least accurate variant alone carries "
        f"{world.CAPACITY:,}/s. Unlike the prototype's, no run here is shorter than its 95th percentile.",
        _reached(found),
        "Accuracy:",
        _table(found, lambda outcome: number(outcome.summary["effective_accuracy"], 2)),
        "Violations:",
        _table(found, lambda outcome: percent(outcome.summary["violation_ratio"], 2)),
        "Violations of the paper's prototype, by its Tables 3 and 4 (3400 is not among its loads):",
        _published(),
        "Its text has no accuracies as numbers. At 3600/s and on the trace, whose peaks are above all capacity, no "
        "policy of RAMSIS meets the load by its own expectation, and the fastest variant runs. What then cannot be in "
        "time is dropped from the front of a queue until the rest is in time together; served late, as the paper "
        "does, the whole batch would be.",
        cut_short(every),
    )


def _reached(found: dict[str, dict[str, Outcome]]) -> str:
    return joined(*(_verdicts(found, stack) for stack in (KNOWN_LOAD, "ramsis")))


def _verdicts(found: dict[str, dict[str, Outcome]], stack: str) -> str:
    told = []
    for name, asked in PUBLISHED.items():
        outcome = found.get(name, {}).get(stack)
        if asked.reach is None or outcome is None:
            continue
        accuracy, ratio = outcome.summary["effective_accuracy"], outcome.summary["violation_ratio"]
        kept = accuracy is not None and round(accuracy, 1) >= asked.reach and ratio <= asked.ramsis
        told.append(
            f"{name}/s: {number(accuracy, 2)} at {percent(ratio, 2)}, asked {asked.reach} at "
            f"{percent(asked.ramsis, 2)} ({'reached' if kept else '**missed**'})"
        )
    return f"`{stack}`: {'; '.join(told)}." if told else ""


def _table(found: dict[str, dict[str, Outcome]], cell) -> str:
    head = ("stack", *(name if name == TWITTER else f"{name}/s" for name in found))
    rows = [
        (f"`{stack}`", *(cell(some[stack]) if stack in some else "" for some in found.values())) for stack in STACKS
    ]
    return table(head, rows)


def _published() -> str:
    head = ("system", *(name if name == TWITTER else f"{name}/s" for name in PUBLISHED))
    rows = [
        (title, *("" if (value := getattr(one, key)) is None else percent(value, 2) for one in PUBLISHED.values()))
        for title, key in (("RAMSIS", "ramsis"), ("Jellyfish+", "jellyfish"), ("ModelSwitching", "switching"))
    ]
    return table(head, rows)
