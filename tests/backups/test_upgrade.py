"""A database of the last release is copied and upgraded with its rows, whatever cuts that off."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.backups.test_backup import Home

pytestmark = pytest.mark.wide

#: made by release 0.2.0's own migrations
FIRST = Path(__file__).with_name("release_0_2_0.sql")
CHECK = """
from registry.models import *
from scheduler.models import Plan
from scheduler.members import contents
variant = Variant.objects.get(name="v")
assert variant.application.name == "old" and variant.accuracy == 90
profile = variant.profiles.get()
assert [(one.batch, one.size, one.p95_ms) for one in profile.latencies.all()] == [(1, 0, 2.0)]
assert ApiKey.objects.get(name="mine").key_hash == "b" * 64
assert Plan.objects.count() == 30 and {plan.stack for plan in Plan.objects.all()} == {"nereus"}
node = Node.objects.get()
assert node.state == "approved" and not node.connected and node.seen_s is None
assert contents.node_config(node.pk, contents.read().shared).applications[0].name == "old"
print("all there")
"""
START = "from appliance.local.firststart import prepare; prepare(); "
#: killed in the middle of each migration in turn, then started as usual
KILLED = """
import os
from django.db.migrations.migration import Migration
real = Migration.apply
number = 0
while True:
    number += 1
    pid = os.fork()
    if not pid:
        seen = [0]
        def apply(self, *arguments, **more):
            done = real(self, *arguments, **more)
            seen[0] += 1
            if seen[0] == number:
                os._exit(9)
            return done
        Migration.apply = apply
        from appliance.local.firststart import prepare
        prepare()
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0:
        break
    # The next one gets one further, or to the same place again: what was cut off was undone.
    assert number < 60
print(number, "starts")
"""


@pytest.fixture(scope="module")
def last(tmp_path_factory) -> Home:
    home = Home(tmp_path_factory.mktemp("last") / "home")
    home.folder.mkdir()
    with sqlite3.connect(home.database) as database:
        database.executescript(FIRST.read_text())
    return home


def test_the_last_releases_database_is_copied_and_migrated_though_starts_are_cut_off(last):
    assert "starts" in last.python(KILLED + CHECK)
    copies = sorted((last.folder / "backups").glob("before-*"))
    assert 1 <= len(copies) <= 5
    with sqlite3.connect(copies[0]) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert database.execute("SELECT name FROM registry_application").fetchall() == [("old",)]
    before = {copy.name for copy in copies}
    assert "all there" in last.python(START + CHECK)
    assert {copy.name for copy in (last.folder / "backups").glob("before-*")} == before, "nothing to migrate"
    with sqlite3.connect(last.database) as database:
        assert database.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    # A backup names migrations that this release has in one.
    backup = last.folder.parent / "backup.tar"
    last.run("backup", str(backup))
    assert "Restored" in last.run("restore", str(backup))
