"""A home folder for this session, without the caller's settings; loaded by pytest before Django's settings."""

import atexit
import contextlib
import gc
import importlib
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent

#: examples of a property in the short form; each run draws other ones
FEW = 15
# How long an example takes says nothing on a busy machine.
settings.register_profile("any machine", deadline=None, max_examples=FEW, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("many examples", settings.get_profile("any machine"), max_examples=2_000)
settings.load_profile("any machine")


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    # Modules stay loaded: looking through them for garbage again and again takes seconds a process.
    gc.disable()
    whole = session.config.args == session.config.getini("testpaths")
    if whole and "PYTEST_XDIST_WORKER" in os.environ:
        _import_in_turn(os.environ["PYTEST_XDIST_WORKER"], int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))


def _import_in_turn(worker: str, workers: int) -> None:
    """Begin elsewhere than the other processes, so that most modules are found compiled."""
    files = sorted(ROOT.rglob("test_*.py"))
    begin = len(files) * int(worker.removeprefix("gw")) // workers
    for path in [*files[begin:], *files[:begin]]:
        # Collection imports it again, and reports why it cannot.
        with contextlib.suppress(Exception):
            importlib.import_module(".".join([ROOT.name, *path.relative_to(ROOT).with_suffix("").parts]))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    gc.freeze()
    gc.enable()


# Those of the tests themselves (NEREUS_TEST_BOXES and the like) are no settings: they stay under a name of their own.
for name in [name for name in os.environ if name.startswith("NEREUS_")]:
    value = os.environ.pop(name)
    if name.startswith("NEREUS_TEST_"):
        os.environ[name.removeprefix("NEREUS_")] = value
HOME = tempfile.mkdtemp(prefix="nereus-test-")
os.environ["NEREUS_HOME"] = HOME
_owner = os.getpid()


@atexit.register
def _remove() -> None:
    if os.getpid() == _owner:
        shutil.rmtree(HOME, ignore_errors=True)
