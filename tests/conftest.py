"""Fixtures on real parts: a private Redis and tiny real ONNX models."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
import redis
from xdist.scheduler import LoadFileScheduling

from appliance.redis_server import executable as redis_executable
from tests import tiny

#: files whose tests take longest begin first, so that no process is left alone with them at the end
LONGEST = ("test_year.py", "test_demo.py", "test_matrix.py", "test_benchmarks.py", "test_ansible.py", "test_backup.py")


#: files that share a process's appliance: it takes longer to start than many of their tests. Browsers' tests add nodes.
SHARED = {
    **dict.fromkeys(("browser", "desk", "serving", "websockets"), "one"),
    **dict.fromkeys(
        ("command_line", "hangs", "members", "operators_commands", "switching"),
        "another",
    ),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONGEST)


class _ByFile(LoadFileScheduling):
    """A file's tests in one process, and those of files that share an appliance."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        folder, _, name = file.rpartition("/test_")
        return SHARED.get(name.removesuffix(".py"), file) if folder == "tests/appliance" else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log):
    return _ByFile(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(scope="session", autouse=True)
def _quick_passwords():
    """Of Django's hashers one that does not slow tests down on purpose, and the default for passwords that have it."""
    from django.conf import settings
    from django.test import override_settings

    quick = "django.contrib.auth.hashers.MD5PasswordHasher"
    with override_settings(PASSWORD_HASHERS=[quick, *settings.PASSWORD_HASHERS]):
        yield


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings):
    """No test's own database has to outlive a power cut: homes of other processes have theirs."""
    from django.conf import settings

    options = settings.DATABASES["default"]["OPTIONS"]
    options["init_command"] = options["init_command"].replace("synchronous=FULL", "synchronous=OFF")


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup, django_db_blocker):
    """As a start leaves a new database. Django's permissions, which nothing here asks for, are not made again each time
    that a test's rows are deleted."""
    from django.contrib.auth.management import create_permissions
    from django.contrib.contenttypes.management import create_contenttypes
    from django.db.models.signals import post_migrate

    from appliance.backups import upgrade

    with django_db_blocker.unblock():
        upgrade.vacuum_incrementally()
    assert post_migrate.disconnect(dispatch_uid=f"{create_permissions.__module__}.{create_permissions.__name__}")
    assert post_migrate.disconnect(create_contenttypes)


@pytest.fixture(scope="session")
def redis_server():
    """A real Redis where the settings expect it (the private socket); flushed by :func:`clean_redis`."""
    from django.conf import settings

    socket = settings.REDIS_URL.removeprefix("unix://")
    process = subprocess.Popen(
        [redis_executable(), "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no"],
        stdout=subprocess.DEVNULL,
    )
    client = redis.Redis(unix_socket_path=socket)
    deadline = time.monotonic() + 60
    while True:
        try:
            client.ping()
            break
        except redis.ConnectionError:
            assert process.poll() is None and time.monotonic() < deadline, "Redis does not answer"
            time.sleep(0.02)
    yield client
    process.terminate()
    process.wait(60)


@pytest.fixture
def clean_redis(redis_server):
    """An empty Redis, and a channel layer of this test's event loop: what it holds belongs to the loop that made it."""
    from channels.layers import channel_layers

    redis_server.flushall()
    channel_layers.backends.clear()
    yield redis_server
    channel_layers.backends.clear()


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
    """Real ONNX classifiers, ``x`` FP32 [-1, 4] -> ``y`` FP32 [-1, 3], of rising cost: quick, medium, heavy."""
    folder = tmp_path_factory.mktemp("tiny")
    return {name: tiny.classifier(folder / f"{name}.onnx", work=work) for name, work in tiny.WORK.items()}
