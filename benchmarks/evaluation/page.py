"""The page: sections between markers.

One section can be made again while the others stay.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from scheduler.simulation import ScenarioError
from scheduler.simulation.plots import png

from .runs import Case, Outcome, Runner
from .source import source_digest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: begins the text of a section that was never made
NOT_MADE = "Not made yet"
_MARKER = "<!-- section: {} -->"


@dataclass(frozen=True)
class Context:
    """The inputs of a section.

    Attributes:
        data: folder of the published profiles and traces.
        images: folder of the page's images and CSV files.
        prefix: how the page refers to that folder.
    """

    runner: Runner
    data: Path
    images: Path
    prefix: str
    quick: bool

    def image(self, name: str, figure: Figure, alternative: str) -> str:
        """Write the figure and return the line that shows it."""
        self.images.mkdir(parents=True, exist_ok=True)
        (self.images / name).write_bytes(png(figure))
        return f"![{alternative}]({self.prefix}/{name})"

    def rows(self, name: str, rows: Sequence[Mapping[str, Any]]) -> str:
        """Write a CSV file and return a link to it; "" without rows."""
        if not rows:
            return ""
        self.images.mkdir(parents=True, exist_ok=True)
        with (self.images / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
            writer.writeheader()
            writer.writerows(rows)
        return f"[{name}.csv]({self.prefix}/{name}.csv)"

    def runs(self, name: str, cases: Iterable[Case]) -> str:
        """Write all figures of a section's runs and return a link to them."""
        found = [(case, self.runner.outcome(case)) for case in dict.fromkeys(cases)]
        return self.rows(
            name,
            [
                {"run": str(case), **{key: one for key, one in outcome.summary.items() if not isinstance(one, dict)}}
                for case, outcome in found
                if outcome is not None
            ],
        )

    def outcomes(self, cases: Mapping[str, Case]) -> dict[str, Outcome]:
        """The results that there are, by label."""
        found = {label: self.runner.outcome(case) for label, case in cases.items()}
        return {label: outcome for label, outcome in found.items() if outcome is not None}

    def left_out(self, cases: Iterable[Case]) -> str:
        """A visible note about cases without a result; "" where all have one."""
        missing = sorted({name for case in cases if (name := case.missing())})
        lines = []
        if missing:
            lines.append("**Left out**, for it cannot be run: " + "; ".join(missing) + ".")
        failed = [(case, why) for case in dict.fromkeys(cases) if (why := self.runner.why(case)) is not None]
        lines += [f"**Failed**: {case}: {why}" for case, why in failed]
        return "\n\n".join(lines)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; the first column to the left, the others to the right."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def percent(ratio: float | None, digits: int = 3) -> str:
    """A ratio as percent; "none" for None."""
    return "none" if ratio is None else f"{100 * ratio:.{digits}f}%"


def number(value: float | None, digits: int = 3) -> str:
    return "none" if value is None else f"{value:,.{digits}f}"


def read_sections(text: str) -> dict[str, str]:
    """The sections of a page by name, without their markers."""
    parts = re.split(r"^<!-- section: ([\w-]+) -->\n", text, flags=re.M)
    return {name: body.strip("\n") for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def mark(digest: str) -> str:
    """The hidden line of a section that was made from what has this digest."""
    return f"<!-- source: {digest[:12]} -->"


def mark_of(section: ModuleType, context: Context) -> str:
    """Return the mark that a section has when it is made now.

    It changes with all that the section's figures depend on.
    """
    try:
        cases = section.cases(context)
        return mark(context.runner.digest(cases) if cases else source_digest(start=section.SOURCE))
    except ScenarioError:
        return mark("nothing: data are missing")


def missed(sections: Mapping[str, str], marks: Mapping[str, str]) -> str:
    """List sections that left something out, failed or are outdated.

    Outdated sections were made from another source.

    Args:
        marks: by section that was made, that of one that is made now.
    """
    sentences = []
    for phrase, mark in (
        ("Something is left out or failed in", "**Left out**|**Fail"),
        ("Still to be made", NOT_MADE),
    ):
        titles = [
            body.splitlines()[0].removeprefix("## ")
            for body in sections.values()
            if any(part in body for part in mark.split("|"))
        ]
        if titles:
            sentences.append(f"{phrase}: {', '.join(f'[{title}](#{anchor(title)})' for title in titles)}.")
    older = [body for name, body in sections.items() if NOT_MADE not in body and marks[name] not in body]
    titles = [body.splitlines()[0].removeprefix("## ") for body in older]
    if titles:
        links = ", ".join(f"[{title}](#{anchor(title)})" for title in titles)
        sentences.append(f"Made before the latest change of what they depend on, and perhaps other than now: {links}.")
    return " ".join(sentences) or "Nothing is left out."


def anchor(title: str) -> str:
    """The name that Markdown readers give to a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def compose(head: str, sections: Mapping[str, str]) -> str:
    """The whole page."""
    parts = [head.strip("\n")]
    parts += [f"{_MARKER.format(name)}\n{body.strip(chr(10))}" for name, body in sections.items()]
    return "\n\n".join(parts) + "\n"
