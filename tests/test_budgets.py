"""Folders keep to their budgets of lines; raising one is a decision."""

import tomllib
from pathlib import Path

import pytest

from tests.running import ROOT

BUDGETS: dict[str, int] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["nereus"]["lines"]
SUFFIXES = {".py", ".js", ".html", ".css", ".yml", ".j2", ".proto", ".md"}


def lines(folder: Path) -> int:
    files = [path for path in folder.rglob("*") if path.suffix in SUFFIXES and "migrations" not in path.parts]
    return sum(len(path.read_text().splitlines()) for path in files)


@pytest.mark.parametrize("folder", BUDGETS)
def test_a_folder_keeps_to_its_budget(folder):
    assert 0 < lines(ROOT / folder) <= BUDGETS[folder]
