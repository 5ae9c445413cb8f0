"""Plans every 30 s beside plans every 10 s.

30 s are the period of Proteus' authors and the live default; all other sections use 10 s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..page import Context
from ..runs import Case, Outcome
from ..worlds import every
from ..worlds import published as world
from .common import Claim, claimed, compared, cut_short, joined, verdict

NAME = "period"
TITLE = "Plans every 30 s"
TRACES = ("medium-normal_load", "zipf_exponential_bursty")
STACKS = ("sommelier", "infaas-accuracy", "proteus", "nereus")
PERIOD_S, USUAL_S = 30.0, 10.0
OURS = "proteus"
#: violations (0 to 1) and points of accuracy by which the longer period may be worse, and still work well
MORE, BELOW = 0.001, 0.1


def _cases(context: Context, trace: str) -> dict[str, Case]:
    """By stack and period."""
    worlds = {
        USUAL_S: world(context.data, trace, context.quick),
        PERIOD_S: every(context.data, trace, PERIOD_S, context.quick),
    }
    return {f"{name}, {period_s:g} s": Case(one, name) for name in STACKS for period_s, one in worlds.items()}


def cases(context: Context) -> list:
    return [case for trace in TRACES for case in _cases(context, trace).values()]


def body(context: Context) -> str:
    found = {trace: context.outcomes(_cases(context, trace)) for trace in TRACES}
    rows = {
        f"{trace}, every {period_s:g} s": {
            name: some[label] for name in STACKS if (label := f"{name}, {period_s:g} s") in some
        }
        for trace, some in found.items()
        for period_s in (USUAL_S, PERIOD_S)
    }
    return joined(
        context.left_out(cases(context)),
        f"Proteus' paper (Section 6.1.5) and the live default plan every {PERIOD_S:g} s; its published simulator, "
        f"and so all other sections, every {USUAL_S:g} s. Bursts ask for plans between these in both. Violations / "
        "effective accuracy:",
        compared("trace", rows),
        cut_short({f"{name}, {row}": o for row, some in rows.items() for name, o in some.items()}),
        claimed(_claims(found), "Proteus"),
    )


def _claims(found: Mapping[str, Mapping[str, Outcome]]) -> Iterator[Claim]:
    """Yield the claims of Proteus' Section 6.1.5 beside these figures, by trace.

    Yields nothing where some figures are missing.
    """
    short, long = (f"{OURS}, {period_s:g} s" for period_s in (USUAL_S, PERIOD_S))
    pairs = [(some[short].summary, some[long].summary) for some in found.values() if {short, long} <= some.keys()]
    if not pairs:
        return
    more = [slow["violation_ratio"] - fast["violation_ratio"] for fast, slow in pairs]
    less = [(slow["effective_accuracy"] or 0.0) - (fast["effective_accuracy"] or 0.0) for fast, slow in pairs]
    finding = " and ".join(
        f"{100 * a:+.2f} points of violations, {b:+.2f} of accuracy" for a, b in zip(more, less, strict=True)
    )
    claim = f"A period of {PERIOD_S:g} s works well (Section 6.1.5)"
    yield claim, f"{finding}, beside {USUAL_S:g} s", verdict(max(more) <= MORE and min(less) >= -BELOW)
