"""The number of a page's queries does not depend on how many rows it shows."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from registry import members, models
from scheduler.repairs import listing
from tests.accounts import account
from tests.console.conftest import add_plan, add_variant

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_redis")]

SECTIONS = ("applications/", "applications/digits/", "plans/", "nodes/", "repairs/", "keys/", "access/", "audit/")
PAGES = ("/", *(f"/{section}" for section in SECTIONS))
REST = (
    *("applications", "nodes", "devices", "gateways", "profiles"),
    *("profile-jobs", "api-tokens", "tasks", "repairs", "audit"),
)
ADMIN = ("/admin/auth/user/",)
ADDRESSES = (*PAGES, *(f"/api/v1/{name}/" for name in REST), *ADMIN)


def grow(cluster: dict, numbers: range) -> None:
    for i in numbers:
        application = models.Application.objects.create(
            name=f"a{i}", slo_ms=80, signature=cluster["application"].signature
        )
        own = add_variant(application, f"v{i}", 90.0)
        more = add_variant(cluster["application"], f"w{i}", 91.0)
        away = {"last_words": "the connection broke", "last_seen": timezone.now()}
        node = models.Node.objects.create(name=f"n{i}", state="approved", **away)
        device = node.devices.create(ref=f"n{i}/cpu0", kind="cpu", type="cpu-a", cores=[0], state="up", warm=[own.pk])
        models.Gateway.objects.create(name=f"g{i}", state="approved", address="http://127.0.0.1:1")
        models.ProfileJob.objects.create(variant=more, device_type="cpu-a")
        models.Fault.objects.create(variant=own, device=device.ref, device_type="cpu-a", cause="crashed")
        members.create_api_token(f"t{i}", account(f"u{i}", "viewer"), "viewer")
        members.create_api_key(f"k{i}")
        add_plan(own)


def queries(client, address: str) -> int:
    listing.forget()
    with CaptureQueriesContext(connection) as made:
        assert client.get(address).status_code == 200
    return len(made)


def test_pages_and_lists_take_as_many_queries_for_many_rows_as_for_few(staff, cluster):
    grow(cluster, range(2))
    few = {address: queries(staff, address) for address in ADDRESSES}
    grow(cluster, range(2, 12))
    many = {address: queries(staff, address) for address in ADDRESSES}
    assert {address: (few[address], many[address]) for address in ADDRESSES if many[address] > few[address]} == {}
