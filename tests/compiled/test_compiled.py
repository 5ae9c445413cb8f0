"""The query path compiled ahead of time: it is built, found by its sources alone, and does what the plain one does."""

from __future__ import annotations

import ast
import json
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
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
HIDE = "import sysconfig; sysconfig.get_config_vars()['CC'] = 'no-such-compiler -pthread'\n"
RUN = "import sys; sys.argv[1:] = {}\nfrom workers.compiled.__main__ import main; sys.exit(main())"


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


def folders(root: Path) -> list[Path]:
    """What was built there, and what a build left behind."""
    return [path for path in (root / ".compiled").iterdir() if path.is_dir()]


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


def note_who_edits(root: Path) -> None:
    """As Emacs does: in a link that leads nowhere."""
    (root / "workers" / "dispatch" / ".#menu.py").symlink_to("somebody@somewhere.1234:5678")


@pytest.fixture
def little(copy) -> Path:
    """Sources that are being edited, of which only a little is to be compiled, and nothing was yet."""
    shutil.rmtree(copy / ".compiled")
    note_who_edits(copy)
    with (copy / "workers" / "compiled" / "closed.py").open("a") as file:
        file.write('\nMODULES = ("workers.dispatch.classes",)\n')
    return copy


def test_all_of_it_is_used(built):
    assert tell(ROOT) == [True, len(MODULES), len(MODULES)]


def test_it_is_not_built_again(built):
    before = built.stat().st_mtime_ns
    assert python("-m", "workers.compiled").stdout == ""
    assert built.stat().st_mtime_ns == before


@pytest.mark.parametrize("changed", ["dispatch/dispatcher.py", "protocol/v2.py", "log.py", "compiled/mypy.ini"])
def test_other_sources_stay_plain(copy, changed):
    assert tell(copy) == [True, len(MODULES), len(MODULES)]
    with (copy / "workers" / changed).open("a") as file:
        file.write("\n# changed\n")
    assert tell(copy) == [False, 0, len(MODULES)]


def test_what_an_editor_leaves_beside_sources_is_none_of_them(copy):
    note_who_edits(copy)
    assert tell(copy) == [True, len(MODULES), len(MODULES)]
    ran = python("-m", "workers.compiled", cwd=copy)
    assert (ran.returncode, ran.stdout) == (0, "")


def test_what_cannot_be_imported_is_not_kept(little):
    with (little / "workers" / "dispatch" / "classes.py").open("a") as file:
        file.write("\nraise RuntimeError('a fault of the compiler, say')\n")
    ran = python("-m", "workers.compiled", cwd=little)
    assert ran.returncode == 1 and "RuntimeError: a fault of the compiler, say" in ran.stdout
    assert not folders(little)


def test_who_builds_at_once_builds_once_and_for_all_users(little):
    # A service has a user of its own, and who installs may be in the habit of keeping things private.
    arguments = [sys.executable, "-m", "workers.compiled"]
    environment = {**os.environ, "PYTHONPATH": str(little)}
    both = [subprocess.Popen(arguments, cwd=little, env=environment, umask=0o077) for _ in range(2)]
    assert [one.wait(600) for one in both] == [0, 0]
    assert len(folders(little)) == 1
    assert tell(little) == [True, 1, 1]
    made = [little / ".compiled", *folders(little), *folders(little)[0].rglob("*")]
    assert [path for path in made if not path.stat().st_mode & (stat.S_IXOTH if path.is_dir() else stat.S_IROTH)] == []


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


def test_what_another_user_keeps_private_is_not_used(copy):
    # Root may read everything, and becomes somebody who may not once all else is imported.
    script = (
        "import os, sysconfig\n"
        "from workers import compiled\n"
        "sysconfig.get_config_vars()\n"
        "os.geteuid() or os.seteuid(65534)\n"
        "print(compiled.use())"
    )
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        copy.joinpath("workers").rename(root / "workers")
        copy.joinpath(".compiled").rename(root / ".compiled")
        assert python("-c", script, cwd=root).stdout == "True\n"
        (root / ".compiled").chmod(0o000)
        assert python("-c", script, cwd=root).stdout == "False\n"
        (root / ".compiled").chmod(0o755)


def test_where_nothing_was_built_all_is_plain(copy):
    shutil.rmtree(copy / ".compiled")
    assert tell(copy) == [False, 0, len(MODULES)]


def test_use_comes_first_or_not_at_all(built):
    ran = python("-c", "import workers.dispatch.menu\nfrom workers import compiled\ncompiled.use()")
    assert "RuntimeError: imported too early: workers.dispatch.menu" in ran.stdout


def test_without_a_compiler_it_says_what_is_missing(copy):
    shutil.rmtree(copy / ".compiled")
    ran = python("-c", HIDE + RUN.format([]), cwd=copy)
    assert ran.returncode == 1 and "no C compiler: no-such-compiler" in ran.stdout
    ran = python("-c", HIDE + RUN.format(["--if-possible"]), cwd=copy)
    assert ran.returncode == 0 and "runs as plain Python" in ran.stdout
    assert "compiling" not in ran.stdout
    assert not (copy / ".compiled").exists()


def test_queries_leave_nothing_behind(built):
    """Compiled code counts references by itself: a compiler's fault in that is memory that never comes back."""
    ran = python("-m", "tests.compiled.left_behind")
    assert ran.returncode == 0, ran.stdout
    assert max(json.loads(ran.stdout)) < 20


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
