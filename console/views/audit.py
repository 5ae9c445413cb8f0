"""The audit log, with filters."""

from __future__ import annotations

from django.conf import settings
from django.core.paginator import Paginator
from django.shortcuts import render

from console.views.access import page
from registry.audit.search import FILTERS, choices, moment, search
from registry.errors import InvalidInput
from registry.models import AuditEntry

PER_PAGE = 100
TIMES = ("since", "until")


@page
def index(request):
    wanted = {name: request.GET.get(name, "")[:150] for name in FILTERS}
    fault, times = "", {}
    try:
        times = {name: moment(name, wanted[name]) for name in TIMES if wanted[name]}
        found = search(wanted)
    except InvalidInput as error:
        found, fault = AuditEntry.objects.none(), str(error)
    shown = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    query = request.GET.copy()
    query.pop("page", None)
    return render(
        request,
        "console/audit.html",
        {
            "entries": shown.object_list,
            "page": shown,
            "query": query.urlencode(),
            "wanted": wanted | times,
            "filtered": any(wanted.values()),
            "fault": fault,
            "choices": choices(),
            "days": settings.NEREUS.audit_days,
        },
    )
