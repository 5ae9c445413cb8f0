"""Health and metrics of the web process; strangers read whether it works."""

from __future__ import annotations

import time

from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from rest_framework.exceptions import AuthenticationFailed

from registry.access import table
from registry.access.roles import caller_role
from registry.access.throttles import address
from registry.api import problems
from registry.api.authentication import token_of
from registry.models import Application, Device, Gateway, Node, Variant
from scheduler import live, troubles
from scheduler.models import Plan
from scheduler.repairs import listing
from scheduler.repairs.repair import Severity
from workers.metrics_access import MetricsAccess


def health(request: HttpRequest) -> JsonResponse:
    """200 while database and Redis answer, else 503.

    Viewers and permitted addresses also read which of them does not, and recent failures.
    """
    checks = {}
    for name, probe in (("database", _database), ("redis", lambda: live.client().ping())):
        started = time.perf_counter()
        try:
            probe()
            checks[name] = {"ok": True, "ms": round((time.perf_counter() - started) * 1000, 2)}
        except Exception as error:
            checks[name] = {"ok": False, "error": type(error).__name__}
    ok = all(check["ok"] for check in checks.values())
    answer = {"status": "ok" if ok else "degraded"}
    if _may_see_more(request):
        answer["checks"] = checks
        answer["troubles"] = [{key: one[key] for key in ("what", "since")} for one in troubles.current()]
    return JsonResponse(answer, status=200 if ok else 503)


def _may_see_more(request: HttpRequest) -> bool:
    # Django has checked the host's name, and proxies that are trusted have passed on the caller's address.
    if MetricsAccess.of(settings.NEREUS).includes(address(request)):
        return True
    try:
        token = token_of(request.headers.get("authorization", "").encode("latin-1", "replace"))
        if token is not None:
            request.user, request.auth = token.user, token
        return table.permits(caller_role(request), "metrics", "GET")
    except (AuthenticationFailed, DatabaseError):
        return False


def _database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


class ControlPlaneCollector(Collector):
    """Gauges read from the database when scraped."""

    def collect(self):
        devices = GaugeMetricFamily("nereus_devices", "Devices by state", labels=["state"])
        for state in Device.State.values:
            devices.add_metric([state], Device.objects.filter(state=state).count())
        yield devices
        members = GaugeMetricFamily("nereus_members_connected", "Connected members by kind", labels=["kind"])
        members.add_metric(["node"], sum(node.connected for node in Node.objects.all()))
        members.add_metric(["gateway"], sum(gateway.connected for gateway in Gateway.objects.all()))
        yield members
        variants = GaugeMetricFamily("nereus_variants", "Variants by state", labels=["state"])
        for state in Variant.State.values:
            variants.add_metric([state], Variant.objects.filter(state=state).count())
        yield variants
        yield GaugeMetricFamily("nereus_applications", "Applications", Application.objects.count())
        needed = [repair for repair in listing.shared() if not repair.ignored_by]
        repairs = GaugeMetricFamily("nereus_repairs", "Repairs that need a person, by severity", labels=["severity"])
        for severity in Severity:
            repairs.add_metric([str(severity)], sum(repair.severity == severity for repair in needed))
        yield repairs
        plan = Plan.objects.only("demand", "served", "accuracy", "solve_s", "gap").first()
        if plan is not None:
            yield GaugeMetricFamily("nereus_plan_version", "Version of the plan in force", plan.pk)
            yield GaugeMetricFamily("nereus_plan_demand", "Items/s that the plan was made for", plan.demand)
            yield GaugeMetricFamily("nereus_plan_served", "Items/s that the plan serves", plan.served)
            yield GaugeMetricFamily("nereus_plan_accuracy", "Planned normalised accuracy, percent", plan.accuracy)
            yield GaugeMetricFamily("nereus_plan_solve_seconds", "Time the last solve took", plan.solve_s)
            yield GaugeMetricFamily("nereus_plan_gap", "Certified relative gap of the last solve", plan.gap)

    def describe(self):
        return []


REGISTRY.register(ControlPlaneCollector())


def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus metrics, for viewers and permitted addresses."""
    if not _may_see_more(request):
        refused = problems.render(401, "Metrics need an API token or session with the role viewer.")
        refused["WWW-Authenticate"] = 'Bearer realm="nereus"'
        return refused
    return HttpResponse(generate_latest(REGISTRY), content_type=CONTENT_TYPE_LATEST)


urlpatterns = [path("health/", health, name="health"), path("metrics", metrics, name="metrics")]
