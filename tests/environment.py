"""A home folder for this session, and none of the caller's settings.

It is loaded by pytest before Django's settings.
"""

import atexit
import gc
import os
import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, settings

#: examples of a property in the short form; each run draws other ones
FEW = 15
# How long an example takes says nothing on a busy machine.
settings.register_profile("any machine", deadline=None, max_examples=FEW, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("many examples", settings.get_profile("any machine"), max_examples=2_000)
settings.load_profile("any machine")


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    # Modules stay loaded: looking through them for garbage again and again takes seconds a process.
    gc.disable()


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
