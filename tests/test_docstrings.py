"""Docstrings begin with a line that stands alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.running import ROOT

FOLDERS = ("ansible", "appliance", "benchmarks", "console", "registry", "scheduler", "tests", "tools", "workers")
LONGEST = 80
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def first_lines(path: Path) -> list[str]:
    """The first line of each docstring of a file."""
    found = [ast.get_docstring(node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, DOCUMENTED)]
    return [text.partition("\n")[0] for text in found if text]


@pytest.mark.parametrize("folder", FOLDERS)
def test_first_lines_are_short(folder):
    files = sorted((ROOT / folder).rglob("*.py"))
    long = [f"{path.relative_to(ROOT)}: {line}" for path in files for line in first_lines(path) if len(line) > LONGEST]
    assert files and long == []
