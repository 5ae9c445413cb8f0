"""The index of the papers' figures on top of the page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .page import NOT_MADE, anchor, table

VERDICTS = ("reproduced", "refuted", "not comparable")


@dataclass(frozen=True)
class Figure:
    """A figure, table or headline of a paper.

    Attributes:
        section: name of the page's section, or the reason why there is none.
        cited: pattern by which that section's claims cite the figure; "": no claim does.
    """

    paper: str
    label: str
    shows: str
    section: str
    cited: str = ""


FIGURES = (
    Figure("Proteus", "Fig. 1", "accuracy and throughput of variants", "not done: live, on each application's page"),
    Figure("Proteus", "Fig. 4, 6.2", "end to end", "end-to-end", r"Fig\. 4|Section 6\.2\)"),
    Figure("Proteus", "6.1.5", "plans every 30 s", "period", r"6\.1\.5"),
    Figure("Proteus", "6.2", "simulator and cluster", "fidelity"),
    Figure("Proteus", "Fig. 5", "bursts over time", "bursty", r"Fig\. 5"),
    Figure("Proteus", "Fig. 6", "batching alone", "batching", r"Fig\. 6"),
    Figure("Proteus", "Fig. 7", "ablations", "ablations", r"6\.5"),
    Figure("Proteus", "Fig. 8", "SLO multiples", "slo", r"6\.6"),
    Figure("Proteus", "Fig. 9", "model families", "applications", r"Fig\. 9"),
    Figure("Proteus", "Fig. 10", "solve times", "scaling", r"6\.8|Fig\. 10"),
    Figure("Proteus", "6.8", "router below 1 ms", "not done: the gateway's own histogram shows it live"),
    Figure("INFaaS", "6.1, Fig. 5", "cost and violations", "infaas", r"6\.1"),
    Figure("INFaaS", "6.3.1", "models that share accelerators", "heterogeneous", r"6\.3\.1"),
    Figure("INFaaS", "Fig. 1, 7", "co-location of two models", "not done: needs a measurement on a GPU"),
    Figure("INFaaS", "Fig. 6", "flat, steady and fluctuating load", "not done"),
    Figure("INFaaS", "Fig. 8", "offline beside online jobs", "not done: there are no offline jobs"),
    Figure("INFaaS", "Tables 2, 3", "cheapest configurations", "not done"),
    Figure("INFaaS", "Table 7", "decision latency", "not done: the gateway's own histogram shows it live"),
    Figure("InfAdapter", "Fig. 1, 6", "capacity by cores", "infadapter", r"Fig\. [16]\)"),
    Figure("InfAdapter", "Fig. 2", "accuracy loss by budget", "infadapter", r"Fig\. 2|14 cores|Observation 2"),
    Figure("InfAdapter", "Fig. 4", "batching and parallelism", "not done: needs a quiet machine"),
    Figure("InfAdapter", "Fig. 5, 7, 9, 10", "the bursty sample", "infadapter", r"\(bursty"),
    Figure("InfAdapter", "Fig. 8 to 10", "the steady sample", "infadapter", r"\(steady"),
    Figure("RAMSIS", "Fig. 5, Table 3", "Twitter trace", "ramsis", r"Table 3|Section 7\.1"),
    Figure("RAMSIS", "Fig. 6, Table 4", "constant loads", "ramsis", r"Fig\. 6|Section 7\.2"),
    Figure("RAMSIS", "Fig. 7", "expectations", "ramsis", r"Fig\. 7"),
    Figure("RAMSIS", "Fig. 10, C", "discretisations of slack", "ramsis", r"Fig\. 10|Appendix C"),
    Figure("RAMSIS", "Fig. 11", "variable batching", "ramsis", r"Fig\. 11"),
    Figure("RAMSIS", "Fig. 8, 12", "text task, other SLOs, clusters", "not done: one of each is simulated"),
)


def index(sections: Mapping[str, str], figures: Iterable[Figure] = FIGURES) -> str:
    """A row for each figure, with the verdicts on the claims that cite it."""
    rows = [(one.paper, one.label, one.shows, *_found(one, sections)) for one in figures]
    return table(("paper", "figure", "shows", "section", "claims"), rows)


def _found(figure: Figure, sections: Mapping[str, str]) -> tuple[str, str]:
    body = sections.get(figure.section)
    if body is None:
        return "", figure.section
    title = body.splitlines()[0].removeprefix("## ")
    return f"[{figure.section}](#{anchor(title)})", NOT_MADE.lower() if NOT_MADE in body else _verdicts(
        body, figure.cited
    )


def _verdicts(body: str, cited: str) -> str:
    if not cited:
        return "figures alone"
    claims = re.findall(r"^\| (.+?) \| .* \| (.+?) \|$", body, re.M)
    counts = Counter(
        kind for claim, verdict in claims if re.search(cited, claim) for kind in VERDICTS if verdict.startswith(kind)
    )
    return ", ".join(f"{counts[kind]} {kind}" for kind in VERDICTS if counts[kind]) or "no claim"
