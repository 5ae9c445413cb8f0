"""The product does what the documentation says."""

import re
from pathlib import Path

import pytest

from tests.running import ROOT
from tools.settings_doc import PATH, render

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "ansible/README.md", ROOT / "workers/net/README.md"]


def test_the_settings_page_is_the_settings():
    assert PATH.read_text() == render(), "run: python -m tools.settings_doc"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path):
    """Relative links, and names in backquotes that begin with a folder of the repository."""
    text = page.read_text()
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    names = [name for name in re.findall(r"`([\w./*-]+/[\w./*-]*)`", text) if (ROOT / name.split("/")[0]).is_dir()]
    names = [name for name in names if not name.startswith(("/", "."))]
    dead = [link for link in links if not (page.parent / link).exists()]
    assert dead + [name for name in names if not any(ROOT.glob(name))] == []


def test_pages_that_are_read_first_stay_short():
    def lines(path: Path) -> int:
        return len(path.read_text().splitlines())

    decisions = [lines(path) for path in (ROOT / "docs/decisions").iterdir()]
    assert lines(ROOT / "README.md") <= 110
    assert max(decisions) <= 60 and sum(decisions) <= 1000


def test_the_glossary_defines_each_term_once():
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    terms = [re.sub(r" \(.*", "", row) for row in rows if row != "term"]
    assert len(terms) == len(set(terms)) <= 150
