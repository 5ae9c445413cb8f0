"""Makes what :mod:`.finder` finds."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from .closed import FOLDER, ROOT, signature


class CannotBuild(Exception):
    """What is missing, or what the compiler says."""


def built() -> bool:
    """Whether the outcome for these sources is there.

    Raises:
        CannotBuild: it cannot be told.
    """
    try:
        return (FOLDER / signature()).is_dir()
    except OSError as error:
        raise CannotBuild(str(error)) from None


def check() -> None:
    """Raises CannotBuild: something that is needed is not there."""
    missing = [name for name in ("mypyc", "setuptools") if importlib.util.find_spec(name) is None]
    if missing:
        raise CannotBuild(f"not installed: {', '.join(missing)} (see requirements.txt)")
    compiler = str(sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        raise CannotBuild(f"no C compiler: {compiler} (Debian and Ubuntu: gcc)")
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not header.is_file():
        raise CannotBuild(f"no {header} (Debian and Ubuntu: python3-dev)")


def build() -> Path:
    """The folder with the outcome for these sources, made if it is not there yet. Outcomes for other sources go.

    Raises:
        CannotBuild: see there.
    """
    try:
        FOLDER.mkdir(exist_ok=True)
        with (FOLDER / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            wanted = FOLDER / signature()
            if not wanted.is_dir():
                _build(wanted)
            for other in FOLDER.iterdir():
                if other.is_dir() and other != wanted:
                    shutil.rmtree(other, ignore_errors=True)
            return wanted
    except OSError as error:
        raise CannotBuild(f"{FOLDER}: {error.strerror or error}") from None


def _build(wanted: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="making-", dir=FOLDER) as home:
        sources = Path(home)
        out = sources / FOLDER.name / wanted.name
        shutil.copytree(
            ROOT / "workers",
            sources / "workers",
            ignore=shutil.ignore_patterns("__pycache__"),
            ignore_dangling_symlinks=True,
        )
        # Sources may change meanwhile: the outcome is that of the copy.
        if wanted.name != signature(sources):
            raise CannotBuild("sources changed just now; try again")
        ran = subprocess.run(
            [sys.executable, "-m", "workers.compiled.extension"],
            cwd=sources,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        if ran.returncode:
            raise CannotBuild("\n".join(ran.stdout.splitlines()[-20:]) or f"exit status {ran.returncode}")
        for path in (*out.rglob("*"), out):
            _store(path)
        out.rename(wanted)


def _store(path: Path) -> None:
    """Have the disk keep it: what is found by its name must be whole, also after a power failure."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
