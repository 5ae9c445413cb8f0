"""Ablations of Proteus and of nereus: Fig. 7."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scheduler.allocation import strategies
from scheduler.simulation.ablations import PARTS
from workers.dispatch.stack import LATE_BINDING

from ..page import Context, anchor, number, percent
from ..runs import Case, Outcome
from ..worlds import World, realistic
from ..worlds import published as world
from .common import Claim, claimed, compared, cut_short, joined, verdict
from .realistic import TITLE as REALISTIC

NAME = "ablations"
TITLE = "Ablations"
TRACE = "medium-normal_load"
BURSTY = "zipf_exponential_bursty"
#: variants that a device may hold in the realistic world
RESIDENTS = 3
PROTEUS = {
    "proteus": ("proteus", None, None),
    "without model selection": ("proteus-wo-ms", None, None),
    "without model placement": ("proteus-wo-mp", None, None),
    "without adaptive batching": ("proteus-wo-ab", None, None),
    "without query assignment": ("proteus-wo-qa", None, None),
}
#: model selection, model placement, adaptive batching and query assignment, in the order above
PROTEUS_PARTS = tuple(label for label in PROTEUS if label != "proteus")
NEREUS = {
    "nereus": ("nereus", None, None),
    "with Proteus' allocation": ("proteus", "nereus", "late-binding"),
    "bound early, by shares": ("nereus", "nexus", "shares"),
    "bound early, Proteus' batching": ("nereus", "proteus", "least-completion"),
    "bound early, work-conserving": ("nereus", "nexus", "least-completion"),
    **{f"without {part}": ("nereus", "nereus", f"{LATE_BINDING}-wo-{part}") for part in PARTS},
}


def _cases(world: World, which: dict) -> dict[str, Case]:
    return {label: Case(world, *names) for label, names in which.items()}


def _nereus() -> dict:
    """The ablations by options, and those that are strategies of their own."""
    own = {name: (name, None, None) for name in strategies.names() if name.startswith("nereus-")}
    return NEREUS | own


def _worlds(context: Context) -> list[tuple[str, World, dict]]:
    """Title, world and the parts that are taken away there."""
    trace = world(context.data, TRACE, context.quick)
    bursty = world(context.data, BURSTY, context.quick)
    few = realistic(context.data, TRACE, RESIDENTS, context.quick)
    return [
        (TRACE, trace, PROTEUS),
        (TRACE, trace, _nereus()),
        (BURSTY, bursty, _nereus()),
        (f"{TRACE}, {RESIDENTS} residents a device", few, _nereus()),
    ]


def cases(context: Context) -> list:
    return [case for _, where, which in _worlds(context) for case in _cases(where, which).values()]


def body(context: Context) -> str:
    found = [(title, which, context.outcomes(_cases(where, which))) for title, where, which in _worlds(context)]
    proteus = found[0][2]
    ours = {title: outcomes for title, which, outcomes in found if which is not PROTEUS}
    rows = {part: {title: o[part] for title, o in ours.items() if part in o} for part in _nereus()}
    return joined(
        context.left_out(cases(context)),
        "One part taken away at a time; violations / effective accuracy. *Bound early*: a query goes to a device's "
        f"queue when it arrives. The last world has loads, a network and noise as [above](#{anchor(REALISTIC)}).",
        compared(f"parts of Proteus, on {TRACE}", {part: {"proteus": o} for part, o in proteus.items()}),
        claimed(_claims(proteus), "Proteus"),
        beside_the_paper(proteus),
        compared("parts of nereus", {part: some for part, some in rows.items() if some}),
        cut_short({f"{part}, {title}": o for title, _, some in found for part, o in some.items()}),
    )


def _claims(outcomes: Mapping[str, Outcome]) -> Iterator[Claim]:
    """Section 6.5 of Proteus beside these figures; nothing where some are missing."""
    whole, (ms, mp, ab, qa) = "proteus", PROTEUS_PARTS
    if not {whole, *PROTEUS_PARTS} <= outcomes.keys():
        return
    violated = {label: outcomes[label].summary["violation_ratio"] for label in (whole, *PROTEUS_PARTS)}
    accuracy = {label: outcomes[label].summary["effective_accuracy"] or 0.0 for label in (whole, *PROTEUS_PARTS)}
    worst = sorted(PROTEUS_PARTS, key=accuracy.__getitem__)
    finding = ", ".join(f"{_short(label)} {accuracy[label]:.2f}" for label in worst)
    claim = "Accuracy falls most without placement, then batching, query assignment, selection (Section 6.5, Fig. 7)"
    yield claim, finding, verdict(worst == [mp, ab, qa, ms])
    finding = (
        f"{accuracy[ms]:.2f}, the highest of all" if accuracy[ms] == max(accuracy.values()) else f"{accuracy[ms]:.2f}"
    )
    reason = (
        "not comparable: with an SLO of 300 ms for all, half of it is too short for the best variants of gpt2 and t5"
    )
    claim = "Without model selection accuracy stays at 100% (Section 6.5)"
    yield claim, finding, verdict(True) if round(accuracy[ms], 1) == 100 else reason
    worst = sorted(PROTEUS_PARTS, key=violated.__getitem__, reverse=True)
    finding = ", ".join(f"{_short(label)} {percent(violated[label], 2)}" for label in worst)
    holds = worst == [ms, ab, qa, mp]
    claim = "Violations rise most without selection, then batching, query assignment, placement (Section 6.5, Fig. 7)"
    yield claim, finding, verdict(holds) + ("" if holds or violated[ab] >= violated[whole] else ": see below")
    finding = f"{percent(violated[ms], 2)} and {percent(violated[qa], 2)}"
    reason = "not comparable: a lighter load (see [End to end](#end-to-end))"
    yield "Without selection 18% are violated, without query assignment 10% (Section 6.5)", finding, reason


def _short(label: str) -> str:
    return label.removeprefix("without ")


def beside_the_paper(outcomes: Mapping[str, Outcome]) -> str:
    """Fig. 7 of Proteus, and how these figures differ from it; "" where they do not."""
    whole, alone = outcomes.get("proteus"), outcomes.get("without adaptive batching")
    if whole is None or alone is None or alone.summary["violation_ratio"] >= whole.summary["violation_ratio"]:
        return ""
    violations = [percent(o.summary["violation_ratio"]) for o in (alone, whole)]
    accuracy = [number(o.summary["effective_accuracy"], 2) for o in (alone, whole)]
    return (
        "**This differs from the paper**, in whose Fig. 7 Proteus without adaptive batching violates most during the "
        f"peak. Here it violates less ({violations[0]} against {violations[1]}) and pays with accuracy "
        f"({accuracy[0]} against {accuracy[1]}): the "
        "plan knows that batches have one query, P = 1 / latency(1), and takes faster variants, which leave queries "
        "more of their time. The paper does not say whether its plan for this ablation still counts on batches."
    )
