"""Backup and restore, and the copy before migrations, of a real database, store and secrets."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.forked import ForkedProcess, of_commands
from tests.running import bare_environment, free_ports

pytestmark = pytest.mark.wide


class Home:
    """A home folder with a database but no processes, whose commands run as an operator runs them."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        (port,) = free_ports(1)
        bare = bare_environment()
        self._environment = {**bare, "NEREUS_HOME": str(folder), "NEREUS_CONSOLE": f"127.0.0.1:{port}", **settings}

    def run(self, *arguments: str, code: int = 0) -> str:
        done = of_commands().run("manage.py", *arguments, env=self._environment)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def python(self, code: str) -> str:
        return self.run("shell", "-v", "0", "-c", code)

    def process(self, *arguments: str) -> ForkedProcess:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        return of_commands().start("manage.py", *arguments, env=self._environment, **pipes)

    @property
    def database(self) -> Path:
        return self.folder / "nereus.sqlite3"

    def state(self) -> dict[str, bytes]:
        kept = ("secret_key", "credentials.json", "nereus.sqlite3", "models")
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and path.relative_to(self.folder).parts[0] in kept and not path.name.startswith(".")
        }


FILL = """
from appliance.local.firststart import prepare
from registry.models import Application, Variant, ApiKey
from registry import storage
prepare()
incoming = storage.Incoming(1000)
incoming.write(b"a model")
incoming.finish()
incoming.place()
incoming.discard()
application = Application.objects.create(name="kept", slo_ms=100, signature={})
Variant.objects.create(application=application, name="v", digest=incoming.digest, size_bytes=7)
Variant.objects.create(application=application, name="gone", digest="0" * 64, size_bytes=7)
"""
CHANGE = """
from registry.models import Application
from registry import storage
for variant in Application.objects.get(name="kept").variants.all():
    storage.path(variant.digest).unlink(missing_ok=True)
Application.objects.all().delete()
Application.objects.create(name="later", slo_ms=100, signature={})
"""
NAMES = "from registry.models import Application; print(*Application.objects.values_list('name', flat=True))"


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    home = Home(tmp_path_factory.mktemp("filled") / "home")
    home.python(FILL)
    return home.folder


def copied(filled: Path, folder: Path) -> Home:
    shutil.copytree(filled, folder)
    (folder / "secret_key").unlink()
    return Home(folder)


@pytest.fixture(scope="module")
def original(tmp_path_factory, filled) -> tuple[Home, Path]:
    home = copied(filled, tmp_path_factory.mktemp("original") / "home")
    file = home.folder.parent / "backup.tar"
    assert "0" * 64 + " is not in the store" in home.run("backup", str(file))
    return home, file


def test_a_backup_has_all_and_is_private(original):
    home, file = original
    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as tar:
        names = tar.getnames()
        manifest = json.load(tar.extractfile("manifest.json"))
    assert names[0] == "manifest.json" and names[1] == "database.sqlite3"
    assert {"home/secret_key", "home/credentials.json"} < set(names)
    assert [part["name"] for part in manifest["parts"]] == names[1:]
    assert manifest["missing"] == ["0" * 64] and manifest["database"] == "sqlite"
    assert "exists" in home.run("backup", str(file), code=1)


def test_a_restore_brings_all_back_in_the_same_home(original, filled, tmp_path):
    _, file = original
    home = copied(filled, tmp_path / "home")
    home.python(CHANGE)
    secrets = (home.folder / "secret_key").read_text()
    assert "Restored" in home.run("restore", str(file))
    assert home.python(NAMES).split() == ["kept"]
    assert (home.folder / "secret_key").read_text() != secrets
    assert [path.read_bytes() for path in (home.folder / "models").glob("??/*")] == [b"a model"]
    (replaced,) = (home.folder / "backups").glob("replaced-*")
    with sqlite3.connect(replaced) as database:
        assert database.execute("SELECT name FROM registry_application").fetchall() == [("later",)]
    assert not (home.folder / "restore").exists()


def test_a_restore_fills_an_empty_home(original, tmp_path):
    source, file = original
    home = Home(tmp_path / "home")
    home.run("restore", str(file))
    assert home.python(NAMES).split() == ["kept"]
    assert (home.folder / "credentials.json").read_bytes() == (source.folder / "credentials.json").read_bytes()


PLAN = """
from scheduler.models import Plan
from scheduler.control import versions
for _ in range({count}):
    version = versions.next_version()
    Plan.objects.create(pk=version, stack="nereus", problem={{}}, allocation={{"placements": []}},
        wire={{"version": version, "devices": []}}, status="optimal")
"""
NEWEST = """
from appliance.local.firststart import prepare
from scheduler.models import Plan
prepare()
plan = Plan.objects.first()
prepare()
print("plan", plan.pk, plan.wire["version"], Plan.objects.first().pk)
"""


def newest(home: Home, before: str = "") -> int:
    """The newest plan's version once the appliance started, after the code ``before``, and started again."""
    (line,) = [line for line in home.python(before + NEWEST).splitlines() if line.startswith("plan ")]
    version, wire, again = map(int, line.split()[1:])
    assert version == wire == again
    return version


def test_plans_go_on_above_those_that_members_hold(filled, tmp_path):
    home, file = copied(filled, tmp_path / "home"), tmp_path / "backup.tar"
    assert newest(home, PLAN.format(count=8)) == 8
    home.run("backup", str(file))
    # Until now members got plan 12.
    home.python(PLAN.format(count=4))
    home.run("restore", str(file))
    assert newest(home) == 13
    # A box with another history, as a new one, does not know which plans the lost one made after the backup.
    another = copied(filled, tmp_path / "another")
    another.python(PLAN.format(count=2))
    another.run("restore", str(file))
    assert newest(another) > 1_000_000


def spoil(file: Path, how: str) -> None:
    data = bytearray(file.read_bytes())
    if how == "cut off":
        del data[len(data) // 2 :]
    elif how == "cut off at a file's end":
        with tarfile.open(file) as tar:
            last = tar.getmembers()[-1]
        del data[last.offset :]
        data += bytes(1024)
    elif how == "a bit of the database":
        data[data.index(b"SQLite format 3") + 5000] ^= 1
    elif how == "a bit of a model":
        data[data.index(b"a model")] ^= 1
    elif how == "no backup":
        data = bytearray(b"something else" * 100)
    elif how == "a newer release":
        data = data.replace(b"0002_release_0_3_0", b"9902_release_0_3_0", 1)
    elif how == "another format":
        data = data.replace(b'"format":1', b'"format":7', 1)
    elif how == "a name outside":
        data = renamed(file, b"home/secret_key", b"home/../escaped")
    file.write_bytes(bytes(data))


def renamed(file: Path, name: bytes, other: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(file) as tar, tarfile.open(fileobj=made, mode="w") as new:
        for entry in tar:
            content = tar.extractfile(entry).read()
            if entry.name == "manifest.json":
                content = content.replace(name, other)
            entry.name = entry.name.replace(name.decode(), other.decode())
            entry.size = len(content)
            new.addfile(entry, io.BytesIO(content))
    return made.getvalue()


SPOILT = {
    "cut off": "damaged",
    "cut off at a file's end": "cut off",
    "a bit of the database": "database.sqlite3 is damaged",
    "a bit of a model": "is damaged",
    "no backup": "not a backup",
    "a newer release": "install that release first",
    "another format": "format 7",
    "a name outside": "does not belong",
}


TRY_ALL = """
import json, sys
from pathlib import Path
from appliance.backups import BackupError, restoring
found = {{}}
for file in sorted(Path({folder!r}).glob("*.tar")):
    try:
        restoring.restore(file)
        found[file.stem] = "restored"
    except BackupError as error:
        found[file.stem] = str(error)
print(json.dumps(found))
"""


def test_a_backup_that_is_not_sound_changes_nothing(original, tmp_path):
    source, backup = original
    for how in SPOILT:
        file = tmp_path / f"{how}.tar"
        file.write_bytes(backup.read_bytes())
        spoil(file, how)
    before = source.state()
    found = json.loads(source.python(TRY_ALL.format(folder=str(tmp_path))).splitlines()[-1])
    assert set(found) == set(SPOILT)
    assert {how: text for how, text in found.items() if SPOILT[how] not in text} == {}
    assert source.state() == before
    assert not (source.folder / "restore").exists() and not list(source.folder.parent.glob("escaped"))


def test_a_restore_refuses_while_the_appliance_runs(original):
    from appliance.local.preconditions import locked

    source, file = original
    with locked(source.folder):
        assert "another appliance" in source.run("restore", str(file), code=1)


INTERRUPT = """
import os
from pathlib import Path
from appliance.backups import restoring
from django.db import connection
from registry.models import Application
real = os.replace
home = Path({home!r})
for after in (1, 2, 3):
    connection.close()
    if not os.fork():
        moved = []
        def replace(source, target):
            if str(source).startswith(str(home / "restore")) and "ready" not in str(target):
                moved.append(target)
                if len(moved) == after:
                    os._exit(9)
            real(source, target)
        os.replace = replace
        restoring.restore(Path({file!r}))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 9
    assert (home / "restore" / "ready.json").exists()
    from appliance.local.firststart import prepare
    prepare()
    assert not (home / "restore").exists()
    assert (home / "secret_key").read_bytes() == Path({source!r}).joinpath("secret_key").read_bytes()
    assert [one.name for one in Application.objects.all()] == ["kept"]
    Application.objects.all().delete()
print("complete")
"""


def test_a_restore_that_is_cut_off_is_completed_by_the_next_start(original, filled, tmp_path):
    source, file = original
    home = copied(filled, tmp_path / "home")
    code = INTERRUPT.format(home=str(home.folder), file=str(file), source=str(source.folder))
    assert "complete" in home.python(CHANGE + code)


def test_a_backup_while_others_write_is_one_moment(filled, tmp_path):
    """Pairs of rows that are written together are both in the copy, or neither."""
    home = copied(filled, tmp_path / "home")
    writer = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sqlite3, sys, time\n"
            "d = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)\n"
            "d.execute('CREATE TABLE pair (n)')\n"
            "print('ready', flush=True)\n"
            "n = 0\n"
            "while True:\n"
            "    n += 1\n"
            "    d.execute('BEGIN IMMEDIATE')\n"
            "    d.execute('INSERT INTO pair VALUES (?)', (n,))\n"
            "    d.execute('INSERT INTO pair VALUES (?)', (n,))\n"
            "    d.execute('COMMIT')\n"
            "    time.sleep(0.002)\n",
            str(home.database),
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert writer.stdout.readline() == b"ready\n"
        home.run("backup", str(tmp_path / "one.tar"))
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
    with tarfile.open(tmp_path / "one.tar") as tar:
        tar.extract("database.sqlite3", tmp_path, filter="data")
    with sqlite3.connect(tmp_path / "database.sqlite3") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        counts = dict(database.execute("SELECT count, COUNT(*) FROM (SELECT COUNT(*) AS count FROM pair GROUP BY n)"))
        assert set(counts) <= {2}
