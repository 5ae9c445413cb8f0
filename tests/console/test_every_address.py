"""Every address of the URL configuration, in states that a young appliance does not have."""

from __future__ import annotations

import itertools
import re
from datetime import timedelta
from urllib.parse import quote

import pytest
from django.test import Client
from django.urls import get_resolver
from django.utils import timezone

from registry import clock, members
from registry.audit.recording import record
from registry.models import ApiKey, Application, Gateway, JoinToken, Node, Variant
from registry.signatures import MAX_TENSORS
from registry.webhooks.rows import Webhook
from scheduler import retention, telemetry
from scheduler.control.planner import make_plan
from scheduler.history import marking, recording
from scheduler.history.folding import APPLICATION, DEVICE, TIERS, Bucket
from scheduler.history.models import HistoryPosition, HistoryRow, Mark
from scheduler.models import Plan, Promise, WhatIf
from tests.accounts import account
from tests.console.conftest import EVIL
from tests.control.world import application, listening, node, variant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]

#: as long and as odd as a name can be
ODD = ("0" + "._-" * 21)[:63]
#: what stands for a value that nobody thought of, and not for "None of 3 devices" or the choice "NaN and infinity"
LEAKED = re.compile(r"Traceback|\bNone\b(?! of )|\b[Nn]a[Nn]\b(?! and infinity)|\[object |undefined")
QUERIES = ("", "?seconds=31536000&all=1&application={name}", "?compare={name}")
YEAR_S = 366 * 86400


def arrive(name: str, gateway: str = "front") -> None:
    for ago in range(60, 0, -1):
        counts = {"arrived": 9, "arrived_rows": 9, "in_time": 8, "late": 1, "normalized_sum": 800.0, "p95_ms": 12.0}
        second = {"t": int(clock.wall() - ago), "gateway": gateway, "ready": True, "serving": [name]}
        telemetry.record(telemetry.GATEWAY_STREAM, {**second, "applications": {name: counts}})


def promised(plan: Plan, *names: str) -> None:
    figure = {"expected": 0.97, "interval": [0.9, 1.0], "simulated": [0.91, 0.99]}
    mine = {"items_per_s": 9.0, "accuracy": figure, "violations": figure}
    expected = {name: mine for name in names}
    observed = {name: {"items": 9, "accuracy": None, "violations": 0.1} for name in names}
    common = {"stamp": clock.stamp(), "window_s": 5, "windows": 20, "wall_s": 1.0, "plan": plan.pk, "index": "i"}
    Promise.objects.create(stack="nereus", state="compared", expected=expected, observed=observed, **common)


def served(redis, name: str, **fields) -> Application:
    """An application that was served, planned for and promised, and all other rows."""
    listening(redis)
    node()
    Gateway.objects.create(name="box", state="approved", channel="c!2", address="http://127.0.0.1:8000")
    owner = application(name, description=EVIL, group="ünd 🐟", **fields)
    variant(owner, "quick", 90, 5)
    variant(owner, ODD, 99, 40)
    arrive(name)
    recording.record()
    plan = make_plan("manual", "by operator")
    marking.planned(plan)
    marking.mark(Mark.Kind.NOTE, "moved the rack", by="operator")
    promised(plan, name)
    WhatIf.objects.create(stamp=clock.stamp(), by="operator", changes={"devices": [{"type": "cpu-test-1c"}]})
    user = account("owner", "owner")
    members.create_api_token("box", user, "owner", expires=timezone.now() + timedelta(days=1))
    ApiKey.objects.create(name="box", prefix="abcdefgh", key_hash="0" * 64)
    JoinToken.objects.create(name="box", token_hash="0" * 64)
    Webhook.objects.create(name="box", url="https://example.org/")
    record("changed", "application", name, before={"slo_ms": 200.0}, after={"slo_ms": 300.0})
    record("changed", "node", "box", before={"cordoned_at": None}, after={"cordoned_at": timezone.now().isoformat()})
    return owner


def nothing(redis) -> str:
    return "digits"


def quiet(redis) -> str:
    served(redis, "busy")
    variant(application("digits"), "only", 90, 5, Variant.State.PROFILING).profiles.all().delete()
    return "digits"


def deleted(redis) -> str:
    """Rows of an application that is gone; the latest of each are of another one."""
    served(redis, "digits").delete()
    variant(application("other"), "only", 90, 5)
    make_plan("change")
    promised(Plan.objects.first(), "other")
    return "digits"


def forgotten(redis) -> str:
    """Plans whose problems were deleted, one of a release that kept nothing of it."""
    served(redis, "digits")
    make_plan("period")
    Plan.objects.update(problem={})
    Plan.objects.filter(pk=Plan.objects.last().pk).update(inputs={})
    return "digits"


def unreached(redis) -> str:
    served(redis, "digits")
    Node.objects.update(channel="", last_seen=None, seen_s=None)
    Gateway.objects.update(channel="", last_seen=None, seen_s=None)
    Node.objects.create(name="new", state="pending")
    return "digits"


def odd(redis) -> str:
    served(redis, ODD)
    return ODD


def large(redis) -> str:
    """As many inputs as are allowed, 60 variants, and more applications than a page."""
    shapes = [-1, -1, 2**20]
    tensors = [{"name": f"{i:x>200}", "datatype": "FP32", "shape": shapes} for i in range(MAX_TENSORS)]
    signature = {"inputs": tensors, "outputs": tensors}
    owner = served(redis, "digits")
    Application.objects.update(signature=signature)
    for index in range(60):
        variant(owner, f"{index:v>63}", 50 + index / 5, 3 + index / 50)
    for index in range(60):
        application(f"quiet{index}")
    make_plan("change")
    return "digits"


def a_year(redis) -> str:
    served(redis, "digits")
    bucket = Bucket(10, {"digits": [7] * len(APPLICATION)}, {"digits/quick": 7}, {"box/cpu0": [7] * len(DEVICE)})
    now = int(clock.wall())
    numbers = recording._numbers([bucket], HistoryPosition.objects.get().folds)
    for tier in TIERS:
        resolution = tier.resolution
        ages = range(0, min(tier.keep * resolution, YEAR_S), max(resolution, YEAR_S // 200 // resolution * resolution))
        rows = {now - age - (now - age) % resolution: bucket for age in ages}
        HistoryRow.objects.filter(resolution=resolution).delete()
        HistoryRow.objects.bulk_create(
            HistoryRow(resolution=resolution, start=start, **recording.pack(one, lambda *key: numbers[key])._asdict())
            for start, one in rows.items()
        )
    for day in range(0, 366, 3):
        marking.mark(Mark.Kind.PLAN, f"Plan {day}", at=timezone.now() - timedelta(days=day), link="/plans/999999/")
    retention.enforce()
    return "digits"


def candidates(name: str) -> dict[str, list[object]]:
    """Values of addresses' arguments. One that is not here fails: give it values."""
    plan = Plan.objects.values_list("pk", flat=True)
    return {
        "name": [name, "box", "unknown"],
        "variant": ["quick", ODD, "unknown"],
        "pk": [1, *plan, 2**62],
        "version": [1, *plan, 2**62, 2**80],
        "id": [1, 2**62],
        "ref": ["box/cpu0", "unknown"],
        "key": ["demand:digits", "unknown"],
        "digest": ["0" * 64],
    }


def addresses(resolver=None, before: str = ""):
    for one in (resolver or get_resolver()).url_patterns:
        path = before + str(one.pattern)
        if hasattr(one, "url_patterns"):
            yield from () if path == "admin/" else addresses(one, path)
        else:
            yield path, list(one.pattern.regex.groupindex)


def paths(name: str):
    values = candidates(name)
    for pattern, arguments in addresses():
        for chosen in itertools.product(*(values[argument] for argument in arguments)):
            path = pattern.replace("^", "").replace("$", "")
            for argument, value in zip(arguments, chosen, strict=True):
                written = re.compile(rf"<(\w+:)?{argument}>|\(\?P<{argument}>[^)]*\)")
                path = written.sub(lambda _, value=value: quote(str(value)), path)
            yield f"/{path}"


def leaked(answer) -> str:
    """What a page or document shows that is none of anybody's words; empty: nothing."""
    text = b"".join(answer).decode() if answer.streaming else answer.content.decode()
    if answer.get("Content-Type", "").startswith("text/html"):
        text = re.sub(r"<script.*?</script>|<style.*?</style>", "", text, flags=re.S)
    found = LEAKED.search(text)
    return text[max(0, found.start() - 60) : found.end() + 20] if found else ""


@pytest.mark.parametrize("world", [nothing, quiet, deleted, forgotten, unreached, odd])
def test_every_address_answers_in_words(clean_redis, world):
    name = world(clean_redis)
    wrong = [*asked(name, "operator", QUERIES), *asked(name, "viewer", ("",)), *asked(name, None, ("",))]
    assert wrong == []


@pytest.mark.wide
@pytest.mark.parametrize(("world", "query"), [(large, "?all=1"), (a_year, "?seconds=31536000")])
def test_every_address_answers_whatever_there_is_to_show(clean_redis, world, query):
    assert asked(world(clean_redis), "operator", ("", query)) == []


def asked(name: str, role: str | None, queries: tuple[str, ...]) -> list[tuple]:
    """Ask every address as a role does; the answers that are none in words."""
    wrong = []
    client = Client(raise_request_exception=False)
    if role is not None:
        client.force_login(account(role, role))
    for path in paths(name):
        for query in queries:
            answer = client.get(path + query.format(name=quote(name)))
            if answer.status_code >= 500:
                wrong.append((role, path + query, answer.status_code))
            elif (said := leaked(answer)) and path != "/api/v1/schema/":
                wrong.append((role, path + query, said))
    return wrong
