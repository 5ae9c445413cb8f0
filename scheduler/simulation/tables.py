"""Reading a scenario's tables and CSV files; all faults of tables are reported together."""

from __future__ import annotations

import csv
import difflib
import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

#: characters of a wrong value that a fault repeats
LONGEST_SHOWN = 60


class ScenarioError(ValueError):
    def __init__(self, faults: list[str]):
        super().__init__("\n".join(faults))
        self.faults = faults


class Table:
    """A table of the scenario that notes in ``faults`` what is wrong with it.

    A key that was never asked for is a fault too: call :meth:`finish` at the end.
    """

    def __init__(self, values: Any, where: str, faults: list[str]):
        self.where = where
        self.faults = faults
        self._asked: list[str] = []
        if not isinstance(values, Mapping):
            faults.append(f"{where}: must be a table, not {shown(values)}")
            values = {}
        self.values: Mapping[str, Any] = values

    def name(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key

    def fault(self, key: str, text: str) -> None:
        self.faults.append(f"{self.name(key)}: {text}")

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def raw(self, key: str, default: Any = None) -> Any:
        self._asked.append(key)
        return self.values.get(key, default)

    def text(self, key: str, default: str | None = None, among: Iterable[str] = ()) -> str:
        """A text, one of ``among`` if that is given; without a default it must be there."""
        value = self.raw(key, default)
        among = list(among)
        if not isinstance(value, str) or not value:
            self.fault(key, "is needed" if key not in self.values else f"must be a text, not {shown(value)}")
            return default or ""
        if "\0" in value:
            self.fault(key, f"must not hold the character NUL, as {shown(value)} does")
            return default or ""
        if among and value not in among:
            self.fault(key, f"must be one of {', '.join(among)}, not {shown(value)}{hint(value, among)}")
        return value

    def number(
        self, key: str, default: float | None, low: float, high: float, whole: bool = False, above: bool = False
    ) -> float:
        """From ``low`` (``above``: more than that) to ``high``; needed without a default."""
        value = self.raw(key, default)
        if key not in self.values and default is None:
            self.fault(key, "is needed")
            return low
        kind = "a whole number" if whole else "a number"
        # The range comes first: integers of any length, infinities and what is not a number all fail it without harm.
        good = isinstance(value, int | float) and not isinstance(value, bool)
        good = good and low <= value <= high and not (above and value == low) and (not whole or value == int(value))
        if not good:
            start = f"above {low:g} and at most" if above else f"from {low:g} to"
            self.fault(key, f"must be {kind} {start} {high:g}, not {shown(value)}")
            return low if default is None else default
        return int(value) if whole else float(value)

    def numbers(self, key: str, low: float, high: float, whole: bool = False) -> dict[str, float]:
        table = self.table(key)
        return {name: table.number(name, None, low, high, whole) for name in table.values}

    def table(self, key: str) -> Table:
        return Table(self.raw(key, {}), self.name(key), self.faults)

    def finish(self) -> None:
        for key in self.values:
            if key not in self._asked:
                known = list(dict.fromkeys(self._asked))
                self.fault(key, f"unknown key; known here: {', '.join(known)}{hint(key, known)}")


def shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:
        # Python writes no integer of more than 4,300 digits.
        return "a number of thousands of digits"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}… ({len(text)} characters)"


def hint(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f". Is {near[0]!r} meant?" if near else ""


def csv_rows(path: Path, what: str, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield where each line stands and its values; ``.gz`` is unpacked.

    Raises:
        ScenarioError: the file cannot be read, or has no such column.
    """
    try:
        # Spreadsheets put a byte order mark in front.
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            header = rows.fieldnames or []
            missing = [f"{column!r}{hint(column, header)}" for column in columns if column not in header]
            if missing:
                raise ScenarioError([f"{what}: {path} has no column {', '.join(missing)}"])
            for row in rows:
                yield f"{what}: line {rows.line_num} of {path}", row
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise ScenarioError([f"{what}: {path} cannot be read: {getattr(error, 'strerror', None) or error}"]) from None
