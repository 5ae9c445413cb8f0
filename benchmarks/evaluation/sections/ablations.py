"""Ablations of Proteus and of nereus: Fig. 7."""

from __future__ import annotations

from scheduler.allocation import strategies
from scheduler.simulation import stacks

from ..page import Context
from ..runs import Case
from ..worlds import World
from ..worlds import published as world
from .common import bar_image, cut_short, joined, quantities

NAME = "ablations"
TITLE = "Ablations"
TRACE = "medium-normal_load"
PROTEUS = {
    "proteus": ("proteus", None, None),
    "without model selection": ("proteus-wo-ms", None, None),
    "without model placement": ("proteus-wo-mp", None, None),
    "without adaptive batching": ("proteus-wo-ab", None, None),
    "without query assignment": ("proteus-wo-qa", None, None),
}
NEREUS = {
    "nereus": ("nereus", None, None),
    "with Proteus' allocation": ("proteus", *stacks.LIVE),
    "bound early, least completion": ("nereus", "nereus", "least-completion"),
    "bound early, by shares": ("nereus", "nereus", "shares"),
    "bound early, Proteus' batching": ("nereus", "proteus", "least-completion"),
    "bound early, work-conserving": ("nereus", "nexus", "least-completion"),
    "without a price of time": ("nereus", "nereus", "late-binding-wo-prices"),
    "without waiting for company": ("nereus", "nereus", "late-binding-wo-waiting"),
    "without squeezing in": ("nereus", "nereus", "late-binding-wo-squeezing"),
    "without stealing": ("nereus", "nereus", "late-binding-wo-stealing"),
    "without choosing again at the start": ("nereus", "nereus", "late-binding-wo-upgrades"),
    "without batches beyond half of the SLO": ("nereus", "nereus", "late-binding-wo-lulls"),
    "without variants standing by": ("nereus", "nereus", "late-binding-wo-stand-by"),
}


def _cases(world: World, which: dict) -> dict[str, Case]:
    return {label: Case(world, *names) for label, names in which.items()}


def _nereus() -> dict:
    """The ablations by options, and those that are strategies of their own."""
    own = {name: (name, None, None) for name in strategies.names() if name.startswith("nereus-")}
    return NEREUS | own


def cases(context: Context) -> list:
    trace = world(context.data, TRACE, context.quick)
    return [case for which in (PROTEUS, _nereus()) for case in _cases(trace, which).values()]


def body(context: Context) -> str:
    trace = world(context.data, TRACE, context.quick)
    parts = []
    for title, name, which in (("Of Proteus", "proteus", PROTEUS), ("Of nereus", "nereus", _nereus())):
        outcomes = context.outcomes(_cases(trace, which))
        parts += [
            f"### {title}",
            quantities(outcomes) if outcomes else "No results.",
            cut_short(outcomes),
            bar_image(context, f"ablations-{name}.png", outcomes, f"Ablations of {name}"),
        ]
    return joined(
        context.left_out(cases(context)),
        f"On `{TRACE}`, one part taken away at a time. *Bound early*: a query goes to a device's queue when it "
        "arrives; otherwise as the live default does.",
        *parts,
    )
