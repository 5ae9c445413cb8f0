"""A database of the first release is upgraded, whatever cuts that off.

It is copied first, and migrated with its rows.
"""

from __future__ import annotations

import sqlite3

import pytest

from tests.backups.test_backup import Home

pytestmark = pytest.mark.wide

#: migrate to where a release began, and write rows as that release did
FIRST = """
import json
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
for app in ("contenttypes", "auth", "admin", "sessions"):
    call_command("migrate", app, verbosity=0)
with connection.cursor() as cursor:
    # The REST framework's plain tokens, which that release used.
    cursor.execute("CREATE TABLE authtoken_token (key varchar(40) PRIMARY KEY, user_id integer, created timestamp)")
executor = MigrationExecutor(connection)
state = executor.migrate([("registry", "0001_initial"), ("scheduler", "0001_initial")])
apps = state.apps
Application, Variant = apps.get_model("registry", "Application"), apps.get_model("registry", "Variant")
Node, Device = apps.get_model("registry", "Node"), apps.get_model("registry", "Device")
application = Application.objects.create(name="old", slo_ms=100, signature={"inputs": [], "outputs": []})
variant = Variant.objects.create(application=application, name="v", digest="a" * 64, size_bytes=1, accuracy=90)
node = Node.objects.create(name="box", state="approved", channel="c")
device = Device.objects.create(node=node, ref="box/cpu0", kind="cpu", type="t")
Profile, Latency = apps.get_model("registry", "Profile"), apps.get_model("registry", "ProfileLatency")
profile = Profile.objects.create(variant=variant, device_type="t", load_s=1, memory_bytes=1)
Latency.objects.create(profile=profile, batch=1, p50_ms=1, p95_ms=2, mean_ms=1, samples=3)
apps.get_model("registry", "ProfileJob").objects.create(variant=variant, device_type="t", state="done")
apps.get_model("registry", "ApiKey").objects.create(name="mine", prefix="abc", key_hash="b" * 64)
Plan = apps.get_model("scheduler", "Plan")
fields = {field.name for field in Plan._meta.get_fields()}
plan = {"trigger": "period", "strategy": "nereus", "problem": {"devices": []}, "allocation": {"placements": []},
        "wire": {"version": 1}, "status": "optimal"}
for number in range(30):
    Plan.objects.create(**{name: value for name, value in plan.items() if name in fields})
"""
CHECK = """
from registry.models import *
from scheduler.models import Plan
from scheduler.members import push
variant = Variant.objects.get(name="v")
assert variant.application.name == "old" and variant.accuracy == 90
profile = variant.profiles.get()
assert [(one.batch, one.size, one.p95_ms) for one in profile.latencies.all()] == [(1, 0, 2.0)]
assert ApiKey.objects.get(name="mine").key_hash == "b" * 64
assert Plan.objects.count() == 30 and {plan.stack for plan in Plan.objects.all()} == {"nereus"}
node = Node.objects.get()
assert node.state == "approved" and not node.connected and node.seen_s is None
assert push.node_config(node.pk, push.read_shared()).applications[0].name == "old"
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
def first(tmp_path_factory) -> Home:
    home = Home(tmp_path_factory.mktemp("first") / "home")
    home.python(FIRST)
    return home


def test_the_first_releases_database_is_copied_and_migrated_though_starts_are_cut_off(first):
    assert "starts" in first.python(KILLED + CHECK)
    copies = sorted((first.folder / "backups").glob("before-*"))
    assert 1 <= len(copies) <= 5
    with sqlite3.connect(copies[0]) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert database.execute("SELECT name FROM registry_application").fetchall() == [("old",)]
    before = {copy.name for copy in copies}
    assert "all there" in first.python(START + CHECK)
    assert {copy.name for copy in (first.folder / "backups").glob("before-*")} == before, "nothing to migrate"
    with sqlite3.connect(first.database) as database:
        assert database.execute("PRAGMA auto_vacuum").fetchone() == (2,)
