"""The registry on PostgreSQL: SQLite has one writer at a time, and text of any characters."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests import postgresql
from tests.forked import of_commands
from tests.running import bare_environment

pytestmark = [pytest.mark.wide, postgresql.needed]

Shell = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def shell(tmp_path_factory) -> Shell:
    """Run code on a migrated database; returns what it printed after ``found``."""
    environment = bare_environment() | {
        "NEREUS_HOME": str(tmp_path_factory.mktemp("home")),
        "NEREUS_DATABASE_URL": postgresql.database(),
        "NEREUS_ALLOWED_HOSTS": "testserver",
    }

    def manage(*arguments: str) -> str:
        process = of_commands().start(
            "manage.py", *arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        printed = process.stdout.read()
        assert process.wait() == 0, printed[-3000:]
        return printed

    return lambda code: [
        line.removeprefix("found ")
        for line in manage("shell", "-v", "0", "-c", code).splitlines()
        if line.startswith("found ")
    ]


def test_an_account_whose_name_has_nul_is_none(shell):
    found = shell(
        """
from rest_framework.test import APIClient
from tests.accounts import account, bearer
client = APIClient(raise_request_exception=False)
client.credentials(HTTP_AUTHORIZATION=bearer(account("operator")))
for user in ("a\\0b", ["a\\0"], "nobody"):
    answer = client.post("/api/v1/api-tokens/", {"name": "k", "user": user, "role": "viewer"}, format="json")
    print("found", answer.status_code, answer.json()["errors"][0]["field"])
"""
    )
    assert found == ["400 user"] * 3


def test_a_validation_set_does_not_go_while_a_variant_is_stored_that_needs_it(shell):
    """One transaction stores a variant as uploads do, another deletes the set."""
    found = shell(
        """
import threading
from django.db import connection, transaction
from registry import events, models, services
from registry.errors import Conflict
from tests.registry.graphs import SIGNATURE
events.registry_changed.receivers = []
application = models.Application.objects.create(name="tiny", slo_ms=100, signature=SIGNATURE)
models.ValidationSet.objects.create(application=application, digest="a" * 64, size_bytes=1, metric="top1", rows=1)
ended = threading.Event()

def delete():
    try:
        services.delete_validation(application)
        print("found", "deleted")
    except Conflict as error:
        print("found", "refused", "in use" in error.detail)
    finally:
        connection.close()
        ended.set()

with transaction.atomic():
    services._check_unchanged(application)
    measured = models.Variant.Source.MEASURED
    application.variants.create(name="v", digest="b" * 64, size_bytes=1, accuracy_source=measured)
    deleting = threading.Thread(target=delete)
    deleting.start()
    ended.wait(2)
deleting.join()
print("found", models.ValidationSet.objects.count())
"""
    )
    assert found == ["refused True", "1"]


def test_a_report_of_devices_waits_for_one_under_way_and_profile_jobs_do_not(shell):
    """A newer report takes the values of the one that is being stored back."""
    found = shell(
        """
import threading
from django.db import connection, transaction
from registry import models
from scheduler.members import devices
from scheduler.profiling.dispatch import _claim
from tests.control.world import application, node, variant
from workers.protocol.specs import DeviceState
box = node(devices=1)
device = box.devices.get()
job = variant(application(), "best", 90, 5).profile_jobs.create(device_type=device.type, reason="demand")
states = [[DeviceState(device=device.ref, state="up", plan_version=version)] for version in (0, 1)]

def in_thread(function, *arguments):
    def call():
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '20s'")
            print("found", function(*arguments))
        finally:
            connection.close()
    thread = threading.Thread(target=call)
    thread.start()
    return thread

with transaction.atomic():
    devices.report(box, states[1])
    claiming = in_thread(_claim, job, device)
    claiming.join()
    print("found", "claimed")
    newer = in_thread(lambda: len(devices.report(box, states[0]).events))
    newer.join(2)
newer.join()
device.refresh_from_db()
print("found", device.plan_version)
"""
    )
    assert found == ["True", "claimed", "1", "0"]
