"""The bursty trace over time: Fig. 5."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from scheduler.simulation import plots
from scheduler.simulation.seconds import Second

from ..page import Context, number, percent
from ..worlds import published as world
from .common import Claim, claimed, joined, of, verdict

NAME = "bursty"
TITLE = "Bursts over time"
TRACE = "zipf_exponential_bursty"
#: seconds of a burst in which plans are not made for it yet, and after which they are
ONSET_S, SETTLED_S = 5, 15
OURS, QUICK = "proteus", "infaas-accuracy"


def cases(context: Context) -> list:
    return list(_cases(context).values())


def _cases(context: Context) -> dict:
    return of(world(context.data, TRACE, context.quick))


def body(context: Context) -> str:
    outcomes = context.outcomes(_cases(context))
    left_out = context.left_out(cases(context))
    if not outcomes:
        return joined(left_out, "No results.")
    seconds = {label: outcome.seconds for label, outcome in outcomes.items()}
    drawn = (
        ("accuracy", plots.effective_accuracy(seconds), "Effective accuracy"),
        ("violations", plots.violations(seconds), "Queries late or dropped"),
    )
    return joined(
        left_out,
        f"`{TRACE}`, by the second of arrival.",
        *(context.image(f"bursty-{name}.png", figure, f"{text}, over time by stack") for name, figure, text in drawn),
        claimed(_claims(seconds), "Proteus"),
    )


def _claims(seconds: Mapping[str, Sequence[Second]]) -> Iterator[Claim]:
    """Yield the claims of Proteus' Section 6.3 beside these figures.

    Yields nothing where stacks are missing or no burst is long enough.
    """
    found = bursts(seconds.get(OURS, ()))
    if not found or not {OURS, QUICK} <= seconds.keys():
        return
    onset = {name: _figures(seconds[name], [(start, start + ONSET_S) for start, _ in found]) for name in (OURS, QUICK)}
    after = {name: _figures(seconds[name], [(a + SETTLED_S, end) for a, end in found]) for name in (OURS, QUICK)}
    (ours, _), (quick, _) = onset[OURS], onset[QUICK]
    finding = f"{percent(quick, 2)} against {percent(ours, 2)} in the first {ONSET_S} s of the {len(found)} bursts"
    reason = "" if quick < ours else ": here bursts are looked for each second, and a load takes no time"
    claim = "INFaaS reacts fastest to a burst, Proteus more slowly (Section 6.3, Fig. 5)"
    yield claim, finding, verdict(quick < ours) + reason
    (settled, accuracy), (other, lower) = after[OURS], after[QUICK]
    finding = f"{percent(ours, 2)} in the first {ONSET_S} s, {percent(settled, 2)} after {SETTLED_S} s"
    yield (
        "Proteus violates as a burst starts, and less once it has re-planned (Fig. 5)",
        finding,
        verdict(settled < ours),
    )
    finding = f"{percent(settled, 2)} at {number(accuracy, 2)}, INFaaS {percent(other, 2)} at {number(lower, 2)}"
    claim = f"Then Proteus violates less and is more accurate than INFaaS (Fig. 5; after {SETTLED_S} s)"
    yield claim, finding, verdict(settled < other and (accuracy or 0.0) > (lower or 0.0))


def bursts(seconds: Sequence[Second]) -> list[tuple[int, int]]:
    """Return the bursts: (first second, second behind the last) of each.

    In a burst more arrives than on average. Those in which plans do not have the time to settle are left out.
    """
    mean = sum(second.arrived for second in seconds) / max(1, len(seconds))
    found, start = [], None
    for second in (*seconds, None):
        if second is not None and second.arrived > mean:
            start = second.second if start is None else start
        elif start is not None:
            end = seconds[-1].second + 1 if second is None else second.second
            if end - start > SETTLED_S:
                found.append((start, end))
            start = None
    return found


def _figures(seconds: Sequence[Second], spans: Sequence[tuple[int, int]]) -> tuple[float, float | None]:
    """The violations (0 to 1) and the accuracy of what arrives in these spans."""
    some = [second for second in seconds if any(start <= second.second < end for start, end in spans)]
    arrived, in_time = sum(second.arrived for second in some), sum(second.in_time for second in some)
    earned = sum(second.in_time * (second.effective_accuracy or 0.0) for second in some)
    return 1 - in_time / max(1, arrived), earned / in_time if in_time else None
