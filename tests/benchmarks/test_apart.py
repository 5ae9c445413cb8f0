"""Benchmarks and tests do not import each other.

Only the tests of the benchmarks import benchmarks.
"""

from __future__ import annotations

import ast

import pytest

from tests.running import ROOT

pytestmark = pytest.mark.wide

#: benchmarks measure these from outside, whatever they are made of
INSIDES = ("workers.gateway", "workers.executor", "workers.node")


def imports(folder: str) -> set[tuple[str, str]]:
    """(file, module) of all imports below a folder."""
    found = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            found |= {(str(path.relative_to(ROOT)), name) for name in names}
    return found


def test_only_the_tests_of_benchmarks_import_them_and_they_import_no_test():
    within = {name.split(".")[0] for _, name in imports("benchmarks")}
    assert "appliance" in within and "tests" not in within
    importers = {path for path, name in imports("tests") if name.split(".")[0] == "benchmarks"}
    assert importers and all(path.startswith(("tests/benchmarks/", "tests/faults/")) for path in importers)


def test_benchmarks_do_not_import_the_insides_of_what_they_measure():
    assert not [(path, name) for path, name in imports("benchmarks") if name.startswith(INSIDES)]
