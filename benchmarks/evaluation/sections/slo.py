"""Looser and tighter SLOs: Fig. 8."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..page import Context, percent
from ..runs import Outcome
from ..worlds import fastest_ms, slo_multiple
from .common import STACKS, Claim, claimed, compared, joined, of, throughput, verdict

NAME = "slo"
TITLE = "SLO multiples"
TRACE = "zipf_exponential"
MULTIPLES = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5)
QUICK = (1.0, 2.0, 3.5)
OURS = "proteus"
#: stacks that lower accuracy to serve more, and those that the paper compares
SCALING = ("sommelier", "infaas-accuracy", OURS)
COMPARED = ("clipper-ht", "clipper-ha", *SCALING)
#: violations (0 to 1) that are low
LOW = 0.05

#: by multiple and stack
Found = Mapping[float, Mapping[str, Outcome]]


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
    rows = {name: {f"{m:g}x": found[m][name] for m in multiples if name in found[m]} for name in stacks}
    return joined(
        context.left_out(cases(context)),
        f"`{TRACE}`, where an application's SLO is a multiple of the latency of its fastest variant on a CPU device at "
        f"batch 1: {', '.join(f'{name} {ms:.1f} ms' for name, ms in fastest.items())}. At 1x nothing fits into half of "
        "the SLO on a CPU. Violations / effective accuracy:",
        compared("stack", rows),
        claimed(_claims(found), "Proteus"),
    )


def _claims(found: Found) -> Iterator[Claim]:
    """Section 6.6 of Proteus beside these figures; nothing where some are missing."""
    if not all({*COMPARED} <= some.keys() for some in found.values()):
        return
    violated = {name: [some[name].summary["violation_ratio"] for some in found.values()] for name in COMPARED}
    drop = {name: [some[name].summary["max_accuracy_drop_10s"] or 0.0 for some in found.values()] for name in COMPARED}
    served = {name: [throughput(some[name].summary) or 0.0 for some in found.values()] for name in COMPARED}
    multiples = [f"{multiple:g}x" for multiple in found]
    fewest = [min(violated[name][place] for name in COMPARED) for place in range(len(multiples))]
    beaten = [at for at, ours, best in zip(multiples, violated[OURS], fewest, strict=True) if ours > best]
    finding = f"beaten at {', '.join(beaten)}" if beaten else "at all multiples"
    tight = ": nothing fits into half of such SLOs on a CPU" if beaten and {*beaten} <= {"1x", "1.5x"} else ""
    yield "Proteus violates least at every multiple (Section 6.6, Fig. 8)", finding, verdict(not beaten) + tight
    least = [min(drop[name][place] for name in SCALING) for place in range(len(multiples))]
    larger = [at for at, ours, best in zip(multiples, drop[OURS], least, strict=True) if ours > best]
    finding = f"not at {', '.join(larger)}" if larger else "at all multiples"
    claim = "Proteus drops least accuracy of the systems that scale it (Section 6.6, Fig. 8)"
    yield claim, finding, verdict(not larger)
    rising = [name for name in COMPARED if violated[name] != sorted(violated[name], reverse=True)]
    finding = f"not those of {_names(rising)}" if rising else "for all"
    yield "As the SLO grows, violations fall for all (Section 6.6, Fig. 8)", finding, verdict(not rising)
    falling = [name for name in COMPARED if served[name] != sorted(served[name])]
    finding = f"not that of {_names(falling)}" if falling else "for all"
    yield "As the SLO grows, throughput rises for all (Section 6.6, Fig. 8)", finding, verdict(not falling)
    growing = [name for name in SCALING if drop[name][-1] >= drop[name][0]]
    finding = "; ".join(f"`{name}` {drop[name][0]:.1f} and {drop[name][-1]:.1f}" for name in SCALING)
    claim = f"The largest drop falls for all except Clipper (Section 6.6; {multiples[0]} and {multiples[-1]})"
    yield claim, finding, verdict(not growing)
    finding = f"{percent(min(violated[OURS]), 2)} to {percent(max(violated[OURS]), 2)}"
    claim = "Proteus keeps the same low violation ratio at all SLOs (Section 6.6, Fig. 8)"
    yield claim, finding, verdict(max(violated[OURS]) < LOW)


def _names(stacks: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in stacks)
