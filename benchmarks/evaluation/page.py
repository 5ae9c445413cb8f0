"""The page: sections between markers, each of which can be made alone."""

from __future__ import annotations

import csv
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.figures import table
from scheduler.simulation.plots import png

from .runs import FOLDERS, ROOT, Case, Outcome, Runner

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: begins the text of a section that was never made
NOT_MADE = "Not made yet"
VERDICTS = ("reproduced", "refuted", "not comparable")
#: the page's images and CSV files, beside it
IMAGES = "images/evaluation"

#: cases and outcomes of a section, by row and column of its table
Grid = Mapping[str, Mapping[str, Case]]
Results = Mapping[str, Mapping[str, Outcome]]
#: a paper's sentence with its section or figure, what was found here, and the verdict
Claim = tuple[str, str, str]


def claim(sentence: str, finding: str, holds: bool | str) -> Claim:
    """A claim; a text for ``holds`` says why it is not comparable."""
    verdict = f"not comparable: {holds}" if isinstance(holds, str) else "reproduced" if holds else "refuted"
    return sentence, finding, verdict


@dataclass(frozen=True)
class Context:
    """The inputs of a section: the published profiles and traces in ``data``, and where the page is."""

    runner: Runner
    data: Path
    folder: Path

    def _file(self, name: str) -> Path:
        (self.folder / IMAGES).mkdir(parents=True, exist_ok=True)
        return self.folder / IMAGES / name

    def image(self, name: str, figure: Figure, alternative: str) -> str:
        self._file(name).write_bytes(png(figure))
        return f"![{alternative}]({IMAGES}/{name})"

    def csv(self, name: str, rows: Sequence[Mapping[str, Any]]) -> str:
        with self._file(f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
            writer.writeheader()
            writer.writerows(rows)
        return f" All figures: [{name}.csv]({IMAGES}/{name}.csv)."


def both(outcome: Outcome) -> str:
    """Violations and accuracy in one cell, with half of their range over seeds."""
    cell = f"{percent(outcome.violations)} / {number(outcome.summary['effective_accuracy'])}"
    if not outcome.spread:
        return cell
    spread = number(outcome.spread.get("effective_accuracy"))
    return f"{cell} (± {percent(outcome.spread['violation_ratio'], 2)} / {spread})"


def nothing(*_: Any) -> Iterable[Any]:
    return ()


@dataclass(frozen=True)
class Section:
    """A section of the page.

    Attributes:
        name: for ``--only``.
        claims: nothing where a run is missing.
        corner: what the rows are.
        cell: what a cell shows; None: there is no table.
        turned: rows of the grid are columns of the table.
    """

    name: str
    title: str
    text: str
    grid: Callable[[Context], Grid] = lambda _context: {}
    claims: Callable[[Context, Results], Iterable[Claim]] = nothing
    more: Callable[[Context, Results], Iterable[str]] = nothing
    corner: str = "trace"
    cell: Callable[[Outcome], str] | None = both
    turned: bool = False

    def cases(self, context: Context) -> list[Case]:
        return list(dict.fromkeys(case for row in self.grid(context).values() for case in row.values()))

    @property
    def not_made(self) -> str:
        return f"## {self.title}\n\n{NOT_MADE}: `python -m benchmarks evaluation --only {self.name}`."

    def body(self, context: Context) -> str:
        """Its Markdown, from the results that there are; it writes its images on the way."""
        runner = context.runner
        results = {
            row: {label: outcome for label, case in by_label.items() if (outcome := runner.outcome(case)) is not None}
            for row, by_label in self.grid(context).items()
        }
        flat = {f"{label}, {row}": outcome for row, cells in results.items() for label, outcome in cells.items()}
        figures = [
            {"run": name} | {key: value for key, value in one.summary.items() if not isinstance(value, dict)}
            for name, one in flat.items()
        ]
        missing = {str(case): runner.why(case) for case in self.cases(context) if runner.outcome(case) is None}
        left_out = "; ".join(case for case, why in missing.items() if why is None)
        table_rows = _turned(results) if self.turned else results
        return joined(
            f"## {self.title}",
            self.text + (context.csv(self.name, figures) if figures else ""),
            *(f"**Failed**: {case}: {why}" for case, why in missing.items() if why is not None),
            f"**Not run**: {left_out}." if left_out else "",
            compared(self.corner, table_rows, self.cell) if results and self.cell else "",
            *self.more(context, results),
            _cut_short(flat),
            claimed(self.claims(context, results)),
            f"Code of {code_date()}.",
        )


def _turned(results: Results) -> Results:
    columns = dict.fromkeys(label for cells in results.values() for label in cells)
    return {label: {row: cells[label] for row, cells in results.items() if label in cells} for label in columns}


def compared(corner: str, results: Results, shown: Callable[[Outcome], str] = both) -> str:
    columns = list(dict.fromkeys(label for cells in results.values() for label in cells))
    if not columns:
        return "No results."
    rows = [
        (row, *(shown(cells[one]) if one in cells else "" for one in columns))
        for row, cells in results.items()
        if cells
    ]
    return table((corner, *columns), rows)


def claimed(claims: Iterable[Claim]) -> str:
    rows = list(claims)
    return table(("claim", "found", "verdict"), rows) if rows else ""


def _cut_short(outcomes: Mapping[str, Outcome]) -> str:
    """A note on plans whose search was ended by its time limit."""
    counts = {name: (o.summary["solves_cut_short"], o.summary["solves"]) for name, o in outcomes.items()}
    noted = ", ".join(f"{name} {cut} of {solves}" for name, (cut, solves) in counts.items() if cut)
    return f"Plans for which a search was ended by its time limit: {noted}." if noted else ""


def code_date() -> str:
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%cs (%h)", "--", *FOLDERS]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    return made.stdout.strip() or "no commit"


def joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def percent(ratio: float | None, digits: int = 3) -> str:
    return "none" if ratio is None else f"{100 * ratio:.{digits}f}%"


def number(value: float | None, digits: int = 2) -> str:
    return "none" if value is None else f"{value:,.{digits}f}"


def read_sections(text: str) -> dict[str, str]:
    parts = re.split(r"^<!-- section: ([\w-]+) -->\n", text, flags=re.M)
    return {name: body.strip("\n") for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def compose(head: str, sections: Mapping[str, str]) -> str:
    parts = [f"<!-- section: {name} -->\n{body.strip(chr(10))}" for name, body in sections.items()]
    return "\n\n".join([head.strip("\n"), *parts]) + "\n"


# --- the index of the papers' figures ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class PaperFigure:
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
    PaperFigure("Proteus", "Fig. 1", "accuracy and throughput of variants", "not done: each application's page has it"),
    PaperFigure("Proteus", "Fig. 4, 6.2", "end to end", "end-to-end", r"Fig\. 4|Section 6\.2\)"),
    PaperFigure("Proteus", "6.1.5", "plans every 30 s", "period", r"6\.1\.5"),
    PaperFigure("Proteus", "6.2", "simulator and cluster", "not done: [measured](cluster.md#figures)"),
    PaperFigure("Proteus", "Fig. 5", "bursts over time", "bursty", r"Fig\. 5"),
    PaperFigure("Proteus", "Fig. 6", "batching alone", "batching", r"Fig\. 6"),
    PaperFigure("Proteus", "Fig. 7", "ablations", "proteus-parts", r"6\.5"),
    PaperFigure("Proteus", "Fig. 8", "SLO multiples", "slo", r"6\.6"),
    PaperFigure("Proteus", "Fig. 9", "model families", "applications", r"Fig\. 9"),
    PaperFigure("Proteus", "Fig. 10", "solve times", "scaling", r"6\.8|Fig\. 10"),
    PaperFigure("Proteus", "6.8", "router below 1 ms", "not done: the gateway's own histogram shows it live"),
    PaperFigure("INFaaS", "6.1, Fig. 5", "cost and violations", "infaas", r"6\.1"),
    PaperFigure("INFaaS", "6.3.1", "models that share accelerators", "not done: needs a measurement on a GPU"),
    PaperFigure("INFaaS", "Fig. 1, 7", "co-location of two models", "not done: needs a measurement on a GPU"),
    PaperFigure("INFaaS", "Fig. 6", "flat, steady and fluctuating load", "not done"),
    PaperFigure("INFaaS", "Fig. 8", "offline beside online jobs", "not done: there are no offline jobs"),
    PaperFigure("INFaaS", "Tables 2, 3", "cheapest configurations", "not done"),
    PaperFigure("INFaaS", "Table 7", "decision latency", "not done: the gateway's own histogram shows it live"),
    PaperFigure("InfAdapter", "Fig. 1, 6", "capacity by cores", "infadapter", r"Fig\. [16]\)"),
    PaperFigure("InfAdapter", "Fig. 2", "accuracy loss by budget", "infadapter", r"Fig\. 2|14 cores|Observation 2"),
    PaperFigure("InfAdapter", "Fig. 4", "batching and parallelism", "not done: needs a quiet machine"),
    PaperFigure("InfAdapter", "Fig. 5, 7, 9, 10", "the bursty sample", "infadapter", r"\(bursty"),
    PaperFigure("InfAdapter", "Fig. 8 to 10", "the steady sample", "infadapter", r"\(steady"),
    PaperFigure("RAMSIS", "Fig. 5, Table 3", "Twitter trace", "ramsis-trace", r"Table 3|Section 7\.1"),
    PaperFigure("RAMSIS", "7.1", "fewer workers", "not done: only 60 workers are simulated"),
    PaperFigure("RAMSIS", "Fig. 6, Table 4", "constant loads", "ramsis", r"Fig\. 6|Section 7\.2"),
    PaperFigure("RAMSIS", "Fig. 7", "expectations", "ramsis-forms", r"Fig\. 7"),
    PaperFigure("RAMSIS", "Fig. 10, C", "discretisations of slack", "ramsis-forms", r"Fig\. 10|Appendix C"),
    PaperFigure("RAMSIS", "Fig. 11", "variable batching", "not done: it performs like maximal batching, by the paper"),
    PaperFigure("RAMSIS", "Fig. 8, 12", "text task, other SLOs, clusters", "not done: one of each is simulated"),
)


def index(sections: Mapping[str, str], figures: Iterable[PaperFigure] = FIGURES) -> str:
    """A row for each figure, with the verdicts on the claims that cite it."""
    rows = [(one.paper, one.label, one.shows, *_verdicts(one, sections)) for one in figures]
    return table(("paper", "figure", "shows", "section", "claims"), rows)


def _verdicts(figure: PaperFigure, sections: Mapping[str, str]) -> tuple[str, str]:
    body = sections.get(figure.section)
    if body is None:
        return "", figure.section
    title = body.splitlines()[0].removeprefix("## ")
    link = f"[{figure.section}](#{anchor(title)})"
    if NOT_MADE in body:
        return link, NOT_MADE.lower()
    claims = re.findall(r"^\| (.+?) \| .* \| (.+?) \|$", body, re.M)
    cited = [verdict for sentence, verdict in claims if figure.cited and re.search(figure.cited, sentence)]
    counts = Counter(kind for verdict in cited for kind in VERDICTS if verdict.startswith(kind))
    return link, ", ".join(f"{counts[kind]} {kind}" for kind in VERDICTS if counts[kind]) or "no claim"


def anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
