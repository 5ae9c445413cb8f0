"""Keys of clients, tokens of programs, and accounts of people."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.models import User
from django.shortcuts import render

from console.views.access import page
from registry.access.roles import BY_LABEL, role_of
from registry.models import ApiKey, ApiToken, Application
from registry.webhooks.outgoing import TRIES
from registry.webhooks.rows import Webhook
from scheduler import webhooks


@page
def keys(request):
    """Keys of clients; ``?edit=NAME``: the form for that key's limits."""
    edited = ApiKey.objects.filter(name=request.GET.get("edit", "")).first()
    names = Application.objects.values_list("name", flat=True)
    context = {"keys": ApiKey.objects.order_by("name"), "edited": edited, "applications": names}
    return render(request, "console/keys.html", context)


@page
def access(request):
    accounts = User.objects.prefetch_related("groups").order_by("username")
    context = {
        "accounts": [{"account": account, "role": role_of(account)} for account in accounts],
        "tokens": ApiToken.objects.select_related("user"),
        "roles": list(BY_LABEL),
        "webhooks": [{"hook": hook, "retries": webhooks.retries(hook.pk)} for hook in Webhook.objects.all()],
        "webhook_tries": TRIES,
        "webhook_events": Webhook.Event.choices,
        "webhook_networks": settings.NEREUS.webhook_networks,
    }
    return render(request, "console/access.html", context)
