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

#: folders and files whose tests start whole appliances, those that take longest first
APPLIANCES = (
    "appliance/test_browser.py",
    "appliance/test_command_line.py",
    "appliance/test_demo.py",
    "appliance/test_year.py",
    "appliance/test_lifecycle.py",
    "appliance/test_roles.py",
    "faults/test_matrix.py",
    "appliance",
    "provisioning",
)
#: others that take long: they begin first, so that no process is left alone with them at the end
LONGEST = (
    "benchmarks/test_console.py",
    "test_ansible.py",
    "control/test_leases.py",
    "backups",
    "benchmarks/test_scale.py",
)
#: files of other tests for each one that starts an appliance: an appliance waits more than it computes, and several of
#: them at a time take much memory
BETWEEN = 3

#: files that share a process's appliance: it takes longer to start than many of their tests. Browsers' tests add nodes.
SHARED = {
    **dict.fromkeys(("browser", "desk", "serving", "websockets"), "one"),
    **dict.fromkeys(
        ("command_line", "hangs", "members", "operators_commands", "switching"),
        "another",
    ),
}


def _rank(file: str, first: tuple[str, ...]) -> int:
    """The place of a file, or of its folder, in a list; its length: it is not there."""
    return next((rank for rank, name in enumerate(first) if file == name or file.startswith(name + "/")), len(first))


def _order(files: list[str]) -> list[str]:
    """Files with appliances among the others from the beginning on, each kind's longest first."""
    whole = sorted(
        (one for one in files if _rank(one, APPLIANCES) < len(APPLIANCES)), key=lambda f: _rank(f, APPLIANCES)
    )
    others = sorted((one for one in files if one not in whole), key=lambda file: _rank(file, LONGEST))
    ordered = []
    while whole or others:
        ordered += whole[:1] + others[:BETWEEN]
        whole, others = whole[1:], others[BETWEEN:]
    return ordered


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    files = {item.path: str(item.path.relative_to(folder)) for item in items}
    places = {file: place for place, file in enumerate(_order(list(files.values())))}
    items.sort(key=lambda item: places[files[item.path]])


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
