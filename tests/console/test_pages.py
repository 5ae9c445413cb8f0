"""Contents of the pages, and who may look at them."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.staticfiles import finders
from django.test import Client
from django.urls import resolve
from django.utils import timezone

from console.templatetags.console_format import field_label, moment
from registry import clock, models
from registry.audit import tracking
from scheduler import live
from scheduler.control import requested_variants
from scheduler.models import Promise
from scheduler.repairs import listing
from tests.accounts import account, signed_in
from tests.console.conftest import EVIL, add_plan, add_variant
from tests.running import ROOT
from workers import confinement

PAGES = ["/", "/applications/", "/plans/", "/nodes/", "/keys/", "/repairs/"]
ALL_PAGES = [*PAGES, "/applications/digits/", "/applications/digits/compare/", "/applications/digits/upload/", "/plan/"]


def text(answer) -> str:
    return answer.content.decode()


def test_staff_sign_in_and_come_back_to_where_they_were(db):
    account("operator", password="a long passphrase")
    client = Client(enforce_csrf_checks=True)
    page = text(client.get("/login/?next=/plans/"))
    assert all(f'data-testid="{name}"' in page for name in ("login-username", "login-password", "login-submit"))
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)[1]
    form = {"username": "operator", "password": "a long passphrase", "next": "/plans/", "csrfmiddlewaretoken": token}
    answer = client.post("/login/", form)
    assert (answer.status_code, answer.url) == (302, "/plans/")
    assert client.get("/plans/").status_code == 200


def test_signing_in_does_not_lead_to_another_site(db):
    account("operator", password="a long passphrase")
    form = {"username": "operator", "password": "a long passphrase", "next": "https://elsewhere.example/"}
    assert Client().post("/login/", form).url == "/"


@pytest.mark.parametrize("staff, password", [(True, "wrong"), (False, "a long passphrase")])
def test_a_wrong_password_and_an_account_without_rights_are_refused(db, staff, password):
    account("someone", "viewer" if staff else None, password="a long passphrase")
    client = Client()
    answer = client.post("/login/", {"username": "someone", "password": password})
    assert answer.status_code == 200
    assert 'data-testid="login-error"' in text(answer)
    assert client.get("/").status_code == 302


def test_signing_out_takes_a_post_and_ends_the_session(staff):
    assert staff.get("/logout/").status_code == 405
    assert staff.post("/logout/").url == "/login/"
    assert staff.get("/").status_code == 302


@pytest.mark.parametrize("page", PAGES)
def test_pages_say_what_to_do_while_there_is_nothing_yet(staff, page):
    answer = staff.get(page)
    assert answer.status_code == 200
    empty = {"/applications/": "No applications yet", "/plans/": "No plan yet", "/nodes/": "No nodes yet"}
    assert empty.get(page, "Nereus") in text(answer)


def test_the_current_plan_before_the_first_is_the_empty_history(staff):
    assert staff.get("/plan/").url == "/plans/"


@pytest.mark.parametrize("page", [*ALL_PAGES, "/plans/{version}/"])
def test_a_page_loads_own_files_shows_markup_as_text_and_calls_addresses_that_exist(staff, cluster, page):
    cluster["quick"].state, cluster["quick"].detail = "failed", EVIL
    cluster["quick"].save()
    models.ApiKey.objects.create(name="demo", prefix="abcdefgh", key_hash="0" * 64)
    models.JoinToken.objects.create(name="rack", token_hash="0" * 64)
    answer = staff.get(page.format(version=add_plan(cluster["best"]).pk), follow=True)
    assert answer.status_code == 200
    policy, html = answer["Content-Security-Policy"], text(answer)
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
    assert EVIL not in html
    loaded = re.findall(r'<(?:script|link|img)[^>]*?(?:src|href)="([^"]+)"', html)
    assert loaded and all(path.startswith("/static/") for path in loaded)
    assert [path for path in loaded if finders.find(path.removeprefix("/static/")) is None] == []
    inline = re.findall(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)[^>]*>|\sstyle=|\son\w+=", html)
    assert inline == []
    calls = re.findall(r"<(?:form|button)[^>]*?data-(?:api|call|upload)=[^>]*>", html)
    for tag in calls:
        path = re.search(r'data-(?:api|call|upload)="([^"?]+)', tag)[1]
        method = (re.search(r'data-method="(\w+)"', tag) or [None, "POST"])[1].lower()
        assert path.startswith("/api/v1/")
        view = resolve(path).func
        # A view set's methods are those that its address names.
        assert method in (getattr(view, "actions", None) or dir(view.view_class)), (path, method)
    assert calls or page in ("/", "/plan/", "/plans/{version}/", "/applications/digits/compare/")


def test_a_browser_finds_the_icon_without_signing_in():
    answer = Client().get("/favicon.ico", follow=True)
    assert (answer.status_code, answer["Content-Type"]) == (200, "image/svg+xml")
    assert b"".join(answer) == (ROOT / "static/nereus/mark.svg").read_bytes()


@pytest.mark.parametrize("path", ["/login/", "/admin/login/"])
def test_pages_and_the_admin_name_the_icon(db, path):
    (icon,) = re.findall(r'<link rel="icon"\s+href="([^"]+)"', text(Client().get(path)))
    assert Client().get(icon).status_code == 200


def test_an_applications_page_shows_variants_best_first_with_where_they_are_warm(staff, cluster, clean_redis):
    add_variant(cluster["application"], "new", None, state="profiling", p95=())
    models.ProfileJob.objects.create(
        variant=models.Variant.objects.get(name="new"), device_type="cpu-a", state="running", phase="measuring"
    )
    html = text(staff.get("/applications/digits/"))
    assert re.findall(r'data-testid="variant-row-(\w+)"', html) == ["best", "quick", "new"]
    rows = {name: row for name, row in re.findall(r'data-testid="variant-row-(\w+)"(.*?)</tr>', html, re.S)}
    assert "box/cpu0" in rows["quick"] and "inactive-best" in rows["best"]
    assert "91.8 %" in rows["quick"]
    assert "measuring" in rows["new"]
    live.client().hset(requested_variants.KEY, models.Variant.objects.get(name="quick").pk, clock.stamp())
    assert re.findall(r'data-testid="requested-(\w+)"', text(staff.get("/applications/digits/"))) == ["quick"]
    ids = ["upload-link", "profile-progress-new"]
    assert all(f'data-testid="{name}"' in html for name in ids)


@pytest.mark.parametrize(
    "path", ["/applications/nothing/", "/plans/999/", "/plans/99999999999999999999/", "/nothing/", "/admin/nothing/"]
)
def test_what_does_not_exist_is_not_found(staff, client, path):
    answer = staff.get(path)
    assert answer.status_code == 404 and 'data-testid="not-found"' in text(answer), "with the way back"
    if path == "/nothing/":
        assert client.get(path).status_code == 404 and "Overview" not in text(client.get(path))


def test_a_page_that_fails_names_the_line_of_the_log_that_says_why(staff, caplog):
    common = {"stamp": clock.stamp(), "window_s": 5, "windows": 20, "wall_s": 1.0, "plan": 1, "stack": "nereus"}
    Promise.objects.create(state="compared", expected={"digits": "no figures"}, index="i", **common)
    staff.raise_request_exception = False
    answer = staff.get("/promises/")
    html = text(answer)
    assert answer.status_code == 500 and 'aria-label="Pages"' in html
    incident = re.search(r'data-testid="incident">(\w+)<', html)[1]
    assert any(incident in str(record.msg) and record.levelname == "ERROR" for record in caplog.records)


def test_a_form_without_its_pages_token_is_refused_in_words(db):
    answer = Client(enforce_csrf_checks=True).post("/login/", {"username": "operator", "password": "x"})
    assert answer.status_code == 403 and 'data-testid="form-refused"' in text(answer)


def test_a_plan_that_is_no_longer_kept_says_so(staff, cluster):
    gone, kept = add_plan(cluster["best"]), add_plan(cluster["best"])
    gone.delete()
    answer = staff.get(f"/plans/{kept.pk - 1}/")
    assert answer.status_code == 404 and 'data-testid="plan-gone"' in text(answer)
    assert f'href="/plans/{kept.pk}/"' in text(answer)


@pytest.mark.parametrize("before", ["x", "-1", "1" * 40, "²"])
def test_a_history_position_that_is_no_version_is_not_found(staff, before):
    assert staff.get("/plans/", {"before": before}).status_code == 404


@pytest.mark.parametrize(("expected", "shown"), [(24.5, "24.5"), (None, "–"), ("absent", "–")])
def test_a_plan_says_what_demand_it_expected_where_that_is_known(staff, cluster, expected, shown):
    plan = add_plan(cluster["best"])
    # Plans of older releases do not have it.
    if expected != "absent":
        plan.problem["applications"][0]["expected"] = expected
        plan.save()
    html = text(staff.get("/plan/", follow=True))
    assert re.findall(r'data-testid="expected">([^<]*)<', html)[0] == shown


def test_a_plan_says_what_it_hosts_leaves_out_and_why(staff, cluster):
    plan = add_plan(cluster["best"], left_out=12.0)
    html = text(staff.get("/plan/", follow=True))
    assert f"Plan {plan.pk}" in html and "current" in html
    assert "12.0 items/s of digits" in html
    assert "box/cpu0 hosts best because" in html
    assert "box/cpu0 100 %" in html and "batches up to 4" in html
    assert "20.0 – 40.0" in html
    none = add_plan(cluster["best"], left_out=1e-7)
    rows = re.split(r'data-testid="plan-row-', staff.get("/plans/?all=1").content.decode())[1:]
    assert {int(re.match(r"\d+", row)[0]): "12.0 left out" in row for row in rows} == {plan.pk: True, none.pk: False}
    assert "left out" not in rows[0], "a rounding error is none"


@pytest.mark.parametrize(
    ("method", "gap", "shown"),
    [("milp", 0.004, "MILP, proved"), ("milp", 0.02, "MILP, not proved"), ("search", 0.02, "search"), ("", 0.0, None)],
)
def test_a_plan_says_how_it_was_decided(staff, cluster, method, gap, shown):
    plan = add_plan(cluster["best"])
    plan.method, plan.gap = method, gap
    plan.save()
    page = staff.get(f"/plans/{plan.pk}/").content.decode()
    assert ("Decided by" in page) == (shown is not None)
    assert shown is None or f"<strong>{shown}</strong>" in page
    assert f'data-testid="plan-decided-{plan.pk}">{shown or "–"}</td>' in staff.get("/plans/").content.decode()
    assert staff.get(f"/api/v1/plans/{plan.pk}/").json()["method"] == method


def test_a_plan_can_be_read_after_what_it_names_was_deleted(staff, cluster):
    plan = add_plan(cluster["best"])
    cluster["application"].delete()
    models.Node.objects.all().delete()
    html = text(staff.get(f"/plans/{plan.pk}/"))
    assert "best" in html and "box/cpu0" in html


def test_nodes_show_devices_and_offer_approval_only_where_it_is_due(staff, cluster):
    html = text(staff.get("/nodes/"))
    assert 'data-testid="device-box/cpu0"' in html and "exited with signal 9" in html
    assert 'data-testid="approve-shed"' in html and 'data-testid="approve-box"' not in html
    assert 'data-testid="revoke-box"' in html
    assert "digits/quick" in html


def test_the_nodes_page_warns_of_connected_members_that_are_behind(staff, cluster):
    now = timezone.now()
    since = now - timedelta(seconds=75)
    for kind in (models.Node, models.Gateway):
        kind.objects.update(last_seen=now, seen_s=clock.steady(), behind_since=since)
    page = text(staff.get("/nodes/"))
    for name in ("box", "front"):
        badge = re.search(rf'<a [^>]*href="([^"]+)" data-testid="behind-{name}">(.+?)</a>', page)
        assert badge.groups() == ("/repairs/", f"behind since {moment(since)}")
    assert "behind-shed" not in page  # it waits for approval
    repairs = text(staff.get("/repairs/"))
    box, front = (
        repairs.split(f'data-testid="repair-behind:{key}"')[1].split("</li>")[0]
        for key in ("node:box", "gateway:front")
    )
    assert "older plan" in box and "deleted API keys" not in box and "deleted API keys" in front
    for kind in (models.Node, models.Gateway):
        kind.objects.update(seen_s=clock.steady() - 60)
    assert "behind since" not in text(staff.get("/nodes/"))


def test_the_audit_page_calls_fields_as_the_forms_do(staff, application):
    application.slo_ms, application.late = 90, "serve"
    application.save()
    page = text(staff.get("/audit/?ref=digits"))
    labels = re.findall(r'<span class="muted" title="(\w+)">(.+?)</span>', page)
    assert {("slo_ms", "SLO ms"), ("late", "Late queries"), ("description", "Description")} <= set(labels)
    # Every recorded field that a form has: its label is what stands before the hint, with the unit where that is short.
    forms = "".join(path.read_text() for path in (ROOT / "console" / "templates" / "console").glob("*.html"))
    found = re.findall(
        r'class="field[^"]*"><span>([^<{]+?) ?(?:<em>(.*?)</em>)?</span><(?:input|select)[^>]* name="(\w+)"', forms
    )
    recorded = {name for _, fields in tracking._tracked.values() for name in fields}
    by_name: dict[str, set[str]] = {}
    for label, hint, name in found:
        if name in recorded:
            by_name.setdefault(name, set()).add(f"{label} {hint}" if hint == "ms" else label)
    assert len(by_name) >= 20
    assert {name: labels for name, labels in by_name.items() if field_label(name) not in labels} == {}


def test_members_show_until_when_their_certificate_lasts_and_its_key(staff, cluster):
    assert "Certificate until" not in text(staff.get("/nodes/"))
    until = timezone.now() + timedelta(days=5)
    for kind in (models.Node, models.Gateway):
        kind.objects.update(key_hash="0123456789abcdef" * 4, certificate_until=until)
    models.Gateway.objects.update(certificate_lapsed=True)
    page = text(staff.get("/nodes/"))
    for name in ("box", "front"):
        shown = page.split(f'data-testid="certificate-{name}"')[1].split("</p>")[0]
        assert f"{until:%Y-%m-%d %H:%M} UTC" in shown and ">0123456789abcdef</code>" in shown
        assert ('<a class="badge failed"' in shown) == (name == "front")


def test_a_claim_is_shown_with_its_origin_and_decided_by_operators(staff, cluster, monkeypatch):
    # A claim is shown for some seconds, and this box may be busy.
    now = clock.steady()
    monkeypatch.setattr(clock, "steady", lambda: now)
    token = models.JoinToken.objects.create(name="rack", token_hash="1" * 64)
    for kind in (models.Node, models.Gateway):
        kind.objects.update(
            claim_channel="c",
            claim_s=clock.steady(),
            claimed_at=timezone.now(),
            claim_with=token,
            claim_address="10.0.0.7",
        )
    page = text(staff.get("/nodes/"))
    for kind, name in (("node", "box"), ("gateway", "front")):
        shown = page.split(f'data-testid="claim-{name}"')[1].split("</div></div>")[0]
        assert "from 10.0.0.7 with the join token rack" in shown and f"{name} keeps its credential" in shown
        assert shown.count(f'data-call="/api/v1/{kind}s/{name}/claim/"') == 2
        assert 'data-method="POST"' in shown and 'data-method="DELETE"' in shown
    viewer = signed_in("viewer")
    assert "Another box has claimed this name" in text(viewer.get("/nodes/"))
    assert "/claim/" not in text(viewer.get("/nodes/"))
    for kind in (models.Node, models.Gateway):
        kind.objects.update(claim_s=clock.steady() - 60)
    assert "claimed this name" not in text(staff.get("/nodes/"))


@pytest.mark.parametrize("address", ["/plans/", "/static/nereus/console.css"])
def test_texts_are_compressed_for_those_who_take_it(staff, cluster, address):
    plain, small = staff.get(address), staff.get(address, headers={"accept-encoding": "gzip"})
    assert "Content-Encoding" not in plain and small["Content-Encoding"] == "gzip"
    whole, packed = (b"".join(answer) for answer in (plain, small))
    assert len(packed) < len(whole) / 2


def test_join_tokens_are_shown_with_their_limits(staff, cluster):
    models.JoinToken.objects.create(name="own", token_hash="1" * 64, own_box=True, auto_approve=True)
    models.JoinToken.objects.create(
        name="spent", token_hash="2" * 64, kind="node", uses=2, used=2, expires=timezone.now() - timedelta(days=1)
    )
    page = re.sub(r"<[^>]+>|\s+", " ", text(staff.get("/nodes/")))
    assert re.search(r"own +nodes and gateways of this box +automatic +0 +never", page)
    assert re.search(r"spent +nodes +by an operator +2 of 2 +used up +\d{4}-\d\d-\d\d \d\d:\d\d UTC +expired", page)


def test_the_overview_warns_where_uploads_are_not_isolated(staff, monkeypatch):
    assert "need-isolation" not in text(staff.get("/")) or not confinement.isolation().complete
    monkeypatch.setattr(confinement, "isolation", lambda: confinement.Isolation(landlock=0, seccomp=True))
    # The overview takes the shared look, which lasts some seconds.
    listing.forget()
    shown = text(staff.get("/"))
    assert "need-isolation" in shown and "upload only what you trust" in text(staff.get("/repairs/"))


def test_an_applications_page_says_why_by_the_plan_in_force(staff, cluster):
    assert "No plan yet: the first is made" in text(staff.get("/applications/digits/"))
    plan = add_plan(cluster["best"])
    plan.reasons = [f"digits: best is not used: {EVIL}", "other: of no concern here"]
    plan.save()
    page = text(staff.get("/applications/digits/"))
    assert "None of 30.0 items/s is served." in page and f"/plans/{plan.pk}/" in page
    assert "Best is not used" in page and "of no concern" not in page and EVIL not in page


def test_settings_offer_null_for_numbers_that_json_has_not(staff, cluster):
    models.Application.objects.filter(name="digits").update(non_finite="null")
    chosen = {"/applications/": "", "/applications/digits/": " selected"}
    for page, mark in chosen.items():
        form = re.search(r'<select name="non_finite">.*?</select>', text(staff.get(page)))[0]
        assert f'<option value="null"{mark}>' in form and '<option value="error">' in form
