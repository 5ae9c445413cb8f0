"""Fixtures on real parts: a private Redis and tiny real ONNX models."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
import redis

from appliance.redis_server import executable as redis_executable
from tests import tiny
from tests.running import eventually, redis_answers
from tools import chromium as debian


@pytest.fixture(scope="session", autouse=True)
def _quick_settings():
    """Hash passwords quickly, and look for static files when asked for, not once in each client of a test."""
    from django.conf import settings
    from django.test import override_settings

    quick = "django.contrib.auth.hashers.MD5PasswordHasher"
    with override_settings(PASSWORD_HASHERS=[quick, *settings.PASSWORD_HASHERS], WHITENOISE_AUTOREFRESH=True):
        yield


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """Begin with a file that is there; it goes with the process' home."""
    return True


@pytest.fixture(scope="session")
def _migrated(tmp_path_factory) -> Iterator[tuple[Path, IO]]:
    """The migrated database's path and lock, held at first: one of pytest's processes makes it for all."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with (folder / "migrated.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder / "migrated.sqlite3", lock


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings, _migrated):
    """Tests' databases, which outlive no power cut, skip syncs to disk and copy the migrated one if there."""
    from django.conf import settings

    database = settings.DATABASES["default"]
    options = database["OPTIONS"]
    options["init_command"] = options["init_command"].replace("synchronous=FULL", "synchronous=OFF")
    made, _ = _migrated
    if made.exists():
        shutil.copy(made, database["TEST"]["NAME"])


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup, django_db_blocker, _migrated):
    """Leave the test database as a start does, without permissions that each deletion of rows would make anew."""
    from django.contrib.auth.management import create_permissions
    from django.contrib.contenttypes.management import create_contenttypes
    from django.db.models.signals import post_migrate

    from appliance.backups import databases, upgrade

    made, lock = _migrated
    with django_db_blocker.unblock():
        upgrade.vacuum_incrementally()
        if not made.exists():
            databases.copy_to(made, files=False)
    fcntl.flock(lock, fcntl.LOCK_UN)
    assert post_migrate.disconnect(dispatch_uid=f"{create_permissions.__module__}.{create_permissions.__name__}")
    assert post_migrate.disconnect(create_contenttypes)


@pytest.fixture(autouse=True)
def _content_types_anew():
    """Forget content types of earlier tests, whose rows went with those tests."""
    from django.contrib.contenttypes.models import ContentType

    ContentType.objects.clear_cache()


@pytest.fixture(scope="session")
def redis_server():
    """A real Redis on the private socket of the settings, flushed by :func:`clean_redis`."""
    from django.conf import settings

    socket = settings.REDIS_URL.removeprefix("unix://")
    process = subprocess.Popen(
        [redis_executable(), "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no"],
        stdout=subprocess.DEVNULL,
    )
    client = redis.Redis(unix_socket_path=socket)
    eventually(lambda: redis_answers(client), why="Redis answers", of=[process])
    yield client
    process.terminate()
    process.wait(60)


@pytest.fixture
def clean_redis(redis_server):
    from scheduler import troubles

    redis_server.flushall()
    # A call that timed out in an earlier test would have members' statistics dropped in this one.
    troubles.over(troubles.REDIS)
    yield redis_server


@pytest.fixture
def later(monkeypatch):
    """Let seconds pass on the control plane's steady clock: ``later(60)``."""
    from registry import clock

    passed = 0.0

    def wait(seconds: float) -> None:
        nonlocal passed
        passed += seconds

    monkeypatch.setattr(clock, "steady", lambda: time.monotonic() + passed)
    return wait


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory) -> dict[str, Path]:
    """ONNX classifiers of rising cost, quick, medium and heavy: ``x`` FP32 [-1, 4] -> ``y`` FP32 [-1, 3]."""
    folder = tmp_path_factory.mktemp("tiny")
    return {name: tiny.classifier(folder / f"{name}.onnx", work=work) for name, work in tiny.WORK.items()}


@pytest.fixture(scope="session")
def chromium() -> Iterator[debian.InThread]:
    """Debian's chromium, one in each process. Where it is not installed, tests fail in CI and are skipped elsewhere."""
    if not debian.installed():
        pytest.fail("chromium is not installed") if os.environ.get("CI") else pytest.skip("chromium is not installed")
    with debian.browser() as browser:
        yield browser
