"""Loaded by pytest before Django's settings: a home folder for this session, and none of the caller's settings."""

import atexit
import os
import shutil
import tempfile

from hypothesis import HealthCheck, settings

# How long an example takes says nothing on a busy machine.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

for name in [name for name in os.environ if name.startswith("NEREUS_")]:
    del os.environ[name]
HOME = tempfile.mkdtemp(prefix="nereus-test-")
os.environ["NEREUS_HOME"] = HOME
_owner = os.getpid()


@atexit.register
def _remove() -> None:
    if os.getpid() == _owner:
        shutil.rmtree(HOME, ignore_errors=True)
