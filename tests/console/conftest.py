"""A small cluster in the database, and clients of staff and of others."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore
from django.test import Client

from registry import models
from scheduler.models import Plan
from scheduler.repairs import listing
from tests.accounts import account
from tests.running import SIGNATURE
from tools.chromium import InThread, tab

EVIL = "<script>alert('x')</script>"


@pytest.fixture(autouse=True)
def _no_shared_look():
    """Pages share a look at repairs for some seconds, and an earlier test's is wrong in this one."""
    listing.forget()


@pytest.fixture
def page(chromium, live_server, clean_redis, monkeypatch, request):
    """A page that is signed in as a viewer, at a server of this process that has no websockets.

    Its parameter, if any, are options of playwright's ``new_context``. No script may fail, and no policy be violated.
    """
    monkeypatch.setattr(settings, "SESSION_COOKIE_SECURE", False)
    faults = []

    def note(message) -> None:
        if message.type == "error" and "/ws/" not in message.text:
            faults.append(message.text)

    with tab(chromium, base_url=live_server.url, **getattr(request, "param", {})) as page:
        page.on("console", note)
        page.on("pageerror", lambda error: faults.append(str(error)))
        sign_in(page, "viewer")
        yield page
    assert faults == []


def sign_in(page: InThread, role: str) -> None:
    """Sign in as an account of that role. The sign-in form has tests of its own."""
    user = account(role.replace(" ", "-"), role)
    session = SessionStore()
    session["_auth_user_id"] = str(user.pk)
    session["_auth_user_backend"] = settings.AUTHENTICATION_BACKENDS[-1]
    session["_auth_user_hash"] = user.get_session_auth_hash()
    session.create()
    cookie = {"name": settings.SESSION_COOKIE_NAME, "value": session.session_key, "domain": "localhost", "path": "/"}
    page.context.add_cookies([cookie])


STATIC = Path(__file__).resolve().parents[2] / "static"


@pytest.fixture
def blank(chromium):
    with tab(chromium, base_url="http://localhost") as page:

        def answer(route) -> None:
            path = route.request.url.removeprefix("http://localhost/")
            if path == "test.html":
                route.fulfill(body="<!doctype html><main></main>", content_type="text/html")
            else:
                route.fulfill(path=STATIC / path)

        page.route("**/*", answer)
        page.goto("/test.html")
        yield page


@pytest.fixture
def run_script(blank):
    """Run the body of an async function in Chromium, with ``series`` and ``cluster`` imported; its result."""

    def run(body: str):
        return blank.evaluate(
            f"""async () => {{
            const series = await import("/nereus/series.js"), cluster = await import("/nereus/cluster.js");
            {body}
        }}"""
        )

    return run


@pytest.fixture
def staff(db) -> Client:
    client = Client()
    client.force_login(account("operator", password="a long passphrase"))
    return client


@pytest.fixture
def application(db) -> models.Application:
    return models.Application.objects.create(name="digits", description=EVIL, slo_ms=80, signature=SIGNATURE)


def add_variant(application, name, accuracy, *, state="ready", p95=(10.0, 16.0, 30.0, 70.0)) -> models.Variant:
    variant = models.Variant.objects.create(
        application=application, name=name, digest=name[0] * 64, size_bytes=2048, accuracy=accuracy, state=state
    )
    if p95:
        profile = models.Profile.objects.create(variant=variant, device_type="cpu-a", load_s=0.2, memory_bytes=4096)
        for i, latency in enumerate(p95):
            models.ProfileLatency.objects.create(
                profile=profile, batch=2**i, p50_ms=latency * 0.8, p95_ms=latency, mean_ms=latency * 0.9, samples=20
            )
    return variant


@pytest.fixture
def cluster(application) -> dict:
    best, quick = add_variant(application, "best", 98.0), add_variant(application, "quick", 90.0)
    node = models.Node.objects.create(name="box", state="approved", channel="c1")
    models.Node.objects.create(name="shed", state="pending", channel="c2")
    models.Gateway.objects.create(name="front", state="approved", channel="c3", address="http://127.0.0.1:8000")
    make = models.Device.objects.create
    make(node=node, ref="box/cpu0", kind="cpu", type="cpu-a", cores=[0], state="up", warm=[quick.pk], plan_version=1)
    make(node=node, ref="box/cpu1", kind="cpu", type="cpu-a", cores=[1], state="down", detail="exited with signal 9")
    return {"application": application, "best": best, "quick": quick, "node": node}


def add_plan(best: models.Variant, *, left_out: float = 0.0, trigger: str = "period") -> Plan:
    name = best.application.name
    spec = {"id": best.pk, "name": best.name, "application": name, "accuracy": 98.0, "accuracy_normalized": 100.0}
    resident = {"variant": spec, "max_batch": 4, "rate": 30.0, "time_share": 0.75, "profile": []}
    return Plan.objects.create(
        trigger=trigger,
        stack="proteus",
        status="optimal",
        accuracy=100.0,
        demand=30.0 + left_out,
        served=30.0,
        solve_s=0.0123,
        moves=1,
        reasons=[f"box/cpu0 hosts best because {EVIL}"],
        problem={
            "devices": [{"id": "box/cpu0", "type": "cpu-a", "memory_bytes": None, "available": 1.0}],
            "applications": [{"id": name, "slo_s": 0.08, "demand": 30.0 + left_out, "weight": 1.0}],
            "variants": [],
            "time_limit_s": 10.0,
        },
        allocation={"placements": [], "served": {name: 30.0}, "left_out": {name: left_out}},
        wire={
            "version": 1,
            "devices": [{"device": "box/cpu0", "endpoint": "", "residents": [resident], "revisit_s": 0.0}],
            "routes": [{"application": name, "device": "box/cpu0", "share": 1.0}],
            "bands": {name: {"low": 20.0, "high": 40.0}},
        },
    )
