"""The query path compiled ahead of time: it is built, found by its sources alone, and does what the plain one does."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.running import ROOT
from workers.compiled.closed import LIBRARY, MODULES, signature, source

TELL = """
import importlib, json, sys
from workers import compiled
from workers.compiled.closed import MODULES
used = compiled.use()
files = [importlib.import_module(name).__file__ for name in MODULES]
print(json.dumps([used, sum(file.endswith(".so") for file in files), len(files)]))
"""


def python(*arguments: str, cwd: Path = ROOT, timeout: int = 600) -> subprocess.CompletedProcess:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NEREUS_", "PYTEST_"))}
    environment["PYTHONPATH"] = str(cwd)
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )


def tell(root: Path) -> list:
    """Whether what is compiled is used, of how many modules, of how many."""
    ran = python("-c", TELL, cwd=root)
    assert ran.returncode == 0, ran.stdout
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def built() -> Path:
    ran = python("-m", "workers.compiled")
    if ran.returncode and ("no C compiler" in ran.stdout or "Python.h" in ran.stdout):
        pytest.skip(ran.stdout.splitlines()[0])
    assert ran.returncode == 0, ran.stdout
    return ROOT / ".compiled" / signature()


@pytest.fixture
def copy(built, tmp_path) -> Path:
    """The sources with what was built from them, to be changed."""
    shutil.copytree(ROOT / "workers", tmp_path / "workers", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(built, tmp_path / ".compiled" / built.name)
    return tmp_path


def test_all_of_it_is_used(built):
    assert tell(ROOT) == [True, len(MODULES), len(MODULES)]


def test_it_is_not_built_again(built):
    before = built.stat().st_mtime_ns
    assert python("-m", "workers.compiled").stdout == ""
    assert built.stat().st_mtime_ns == before


@pytest.mark.parametrize("changed", ["dispatch/dispatcher.py", "protocol/v2.py", "log.py"])
def test_other_sources_stay_plain(copy, changed):
    assert tell(copy) == [True, len(MODULES), len(MODULES)]
    with (copy / "workers" / changed).open("a") as file:
        file.write("\n# changed\n")
    assert tell(copy) == [False, 0, len(MODULES)]


@pytest.mark.parametrize("missing", [LIBRARY, MODULES[3], MODULES[-1]])
def test_what_is_not_whole_is_not_used(copy, missing):
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    file = copy / ".compiled" / signature(copy) / (missing.replace(".", "/") + suffix)
    file.unlink()
    assert tell(copy) == [False, 0, len(MODULES)]


def test_what_cannot_be_loaded_is_not_used(copy):
    library = next((copy / ".compiled").glob(f"*/{LIBRARY}*"))
    library.write_bytes(b"something else" * 1000)
    assert tell(copy) == [False, 0, len(MODULES)]


def test_where_nothing_was_built_all_is_plain(copy):
    shutil.rmtree(copy / ".compiled")
    assert tell(copy) == [False, 0, len(MODULES)]


def test_use_comes_first_or_not_at_all(built):
    ran = python("-c", "import workers.dispatch.menu\nfrom workers import compiled\ncompiled.use()")
    assert "RuntimeError: imported too early: workers.dispatch.menu" in ran.stdout


def test_without_a_compiler_it_says_what_is_missing(copy):
    shutil.rmtree(copy / ".compiled")
    hide = "import sysconfig; sysconfig.get_config_vars()['CC'] = 'no-such-compiler -pthread'\n"
    run = "import sys; sys.argv[1:] = {}\nfrom workers.compiled.__main__ import main; sys.exit(main())"
    ran = python("-c", hide + run.format([]), cwd=copy)
    assert ran.returncode == 1 and "no C compiler: no-such-compiler" in ran.stdout
    ran = python("-c", hide + run.format(["--if-possible"]), cwd=copy)
    assert ran.returncode == 0 and "runs as plain Python" in ran.stdout
    assert not [path for path in (copy / ".compiled").iterdir() if path.is_dir()]


@pytest.mark.parametrize("module", MODULES)
def test_no_compiled_module_has_a_message_of_its_own(module):
    tree = ast.parse((ROOT / source(module)).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            assert "Struct" not in {ast.unparse(base).split(".")[-1] for base in node.bases}, node.name


@pytest.mark.parametrize(
    "tests",
    [
        ["tests/dispatch/test_behaviour.py", "tests/dispatch/test_properties.py", "tests/pressure/test_goodput.py"],
        ["tests/gateway/test_http1.py", "tests/v2"],
    ],
    ids=["deciding", "serving"],
)
def test_it_does_what_the_plain_one_does(built, tests):
    present = [test for test in tests if (ROOT / test).exists()]
    assert present == tests
    ran = python("-m", "pytest", "-q", "-p", "tests.compiled.early", "-p", "no:cacheprovider", *tests)
    assert ran.returncode == 0, ran.stdout[-5000:]
