"""Looser and tighter SLOs: Fig. 8."""

from __future__ import annotations

from ..page import Context, number, percent, table
from ..worlds import fastest_ms, slo_multiple
from .common import STACKS, joined, of

NAME = "slo"
TITLE = "SLO multiples"
TRACE = "zipf_exponential"
MULTIPLES = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5)
QUICK = (1.0, 2.0, 3.5)


def _multiples(context: Context) -> tuple[float, ...]:
    return QUICK if context.quick else MULTIPLES


def _cases(context: Context, multiple: float) -> dict:
    return of(slo_multiple(context.data, TRACE, multiple, context.quick))


def cases(context: Context) -> list:
    return [case for multiple in _multiples(context) for case in _cases(context, multiple).values()]


def body(context: Context) -> str:
    multiples = _multiples(context)
    found = {multiple: context.outcomes(_cases(context, multiple)) for multiple in multiples}
    stacks = [name for name in STACKS if any(name in outcomes for outcomes in found.values())]
    fastest = fastest_ms(context.data / "profiles.csv")
    parts = [
        context.left_out(cases(context)),
        f"`{TRACE}`, where an application's SLO is a multiple of the latency of its fastest variant on a CPU device at "
        f"batch 1: {', '.join(f'{name} {ms:.1f} ms' for name, ms in fastest.items())}. At 1x nothing fits into half of "
        "the SLO on a CPU, and there is hardly any slack for a queue anywhere.",
    ]
    if not stacks:
        return joined(*parts, "No results.")
    head = ("stack", *(f"{multiple:g}x" for multiple in multiples))
    for title, key, shown in (
        ("SLO violations", "violation_ratio", percent),
        ("Effective accuracy", "effective_accuracy", number),
    ):
        rows = [
            (f"`{name}`", *(shown(found[m][name].summary[key]) if name in found[m] else "" for m in multiples))
            for name in stacks
        ]
        parts += [f"### {title}", table(head, rows)]
    return joined(*parts)
