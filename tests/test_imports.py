"""Every module can be imported, also a command's or a plug-in's, and none in a circle."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("appliance", "benchmarks", "console", "registry", "scheduler", "tools", "workers")
#: needs a library that only its own run installs
ELSEWHERE = {"benchmarks.mosec.worker", "tools.demo_models.graph", "tools.demo_models.train"}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_can_be_imported(package):
    names = {found.name for found in pkgutil.walk_packages([str(ROOT / package)], f"{package}.")}
    assert names
    for name in sorted(names - ELSEWHERE):
        if not name.endswith(".__main__"):
            importlib.import_module(name)


def test_no_modules_import_each_other_in_a_circle():
    """Imports for types alone count, too."""
    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    TopologicalSorter({name: imported_by(name, files) for name in files}).prepare()


def imported_by(name: str, files: dict[str, Path]) -> set[str]:
    package = name.split(".") if files[name].name == "__init__.py" else name.split(".")[:-1]
    found = set()
    for node in ast.walk(ast.parse(files[name].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            members = {f"{module}.{alias.name}" for alias in node.names}
            found |= members & files.keys() or {module}
    return found & files.keys()
