"""Loaded by pytest before Django's settings: a home folder for this session, and none of the caller's settings."""

import atexit
import os
import shutil
import tempfile

from hypothesis import HealthCheck, settings

# How long an example takes says nothing on a busy machine. Each run draws other examples, so that few a run are enough.
settings.register_profile("any machine", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("many examples", settings.get_profile("any machine"), max_examples=2_000)
settings.load_profile("any machine")

# Those of the tests themselves (NEREUS_TEST_BOXES and the like) stay.
for name in [name for name in os.environ if name.startswith("NEREUS_") and not name.startswith("NEREUS_TEST_")]:
    del os.environ[name]
HOME = tempfile.mkdtemp(prefix="nereus-test-")
os.environ["NEREUS_HOME"] = HOME
_owner = os.getpid()


@atexit.register
def _remove() -> None:
    if os.getpid() == _owner:
        shutil.rmtree(HOME, ignore_errors=True)
