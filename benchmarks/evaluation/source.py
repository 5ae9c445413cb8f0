"""The source that results depend on: the modules that a run imports.

They count as code without comments and docstrings, so that these may change without any figure changing, and so may
modules that no simulation imports (gateways, nodes, the control plane's services).
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: folders whose modules decide about a result, and the library that does
FOLDERS = ("scheduler", "workers")
SOLVER = "pyscipopt"
#: where the imports of a simulation begin, and folders of which registries import whatever is there
SIMULATION = "scheduler/simulation/__init__.py"
FOUND = ("scheduler/stacks/*/__init__.py", "workers/dispatch/published/papers/*.py")


def source_digest(root: Path = ROOT, without: tuple[str, ...] = (), start: str | None = SIMULATION) -> str:
    """Return a digest of the code that ``start`` imports, solver's version included.

    Imports through other modules count, too.

    Args:
        without: what these paths begin with does not count.
        start: None: all modules of :data:`FOLDERS` count.
    """
    digest = hashlib.sha256(version(SOLVER).encode())
    for name in sorted(every(root) if start is None else imported(root, start)):
        if not name.startswith(without):
            digest.update(f"{name}\0{_code((root / name).read_bytes())}\0".encode())
    return digest.hexdigest()


def every(root: Path = ROOT) -> set[str]:
    """The paths of all modules in :data:`FOLDERS`."""
    return {path.relative_to(root).as_posix() for folder in FOLDERS for path in (root / folder).rglob("*.py")}


def imported(root: Path, start: str) -> set[str]:
    """Return the paths in :data:`FOLDERS` that ``start`` imports, itself included.

    Imports anywhere in the modules count, not only those at their tops, and what registries find.
    """
    found: set[str] = set()
    waiting = [start, *(path.relative_to(root).as_posix() for glob in FOUND for path in root.glob(glob))]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        for name in _imports((root / path).read_bytes(), path):
            waiting += _files(root, name)
    return {path for path in found if path.startswith(tuple(f"{folder}/" for folder in FOLDERS))}


def _files(root: Path, name: str) -> Iterator[str]:
    """Yield the files that an import of this module runs: its packages' and its own.

    A name within a module has none.
    """
    parts = name.split(".")
    if parts[0] not in FOLDERS:
        return
    for count in range(1, len(parts) + 1):
        base = "/".join(parts[:count])
        yield from (path for path in (f"{base}/__init__.py", f"{base}.py") if (root / path).exists())


@cache
def _imports(text: bytes, path: str) -> tuple[str, ...]:
    """Return the dotted names of all that a module may import.

    A name that it takes from a module may be a module, too.
    """
    package = path.removesuffix(".py").split("/")[:-1]
    names = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # One dot is the package itself, each further one the package above.
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(names)


@cache
def _code(text: bytes) -> str:
    """The code of a module without comments and docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)
