"""Entries for sign-ins, sign-outs and lock-outs."""

from __future__ import annotations

from axes.signals import user_locked_out
from django.contrib.auth.signals import user_logged_in, user_logged_out

from registry.audit import origins
from registry.audit.recording import record

SIGNED_IN, SIGNED_OUT, LOCKED_OUT = "signed in", "signed out", "locked out"


def connect() -> None:
    user_logged_in.connect(_signed_in, dispatch_uid="audit")
    user_logged_out.connect(_signed_out, dispatch_uid="audit")
    user_locked_out.connect(_locked_out, dispatch_uid="audit")


def _record(action: str, name: str, request) -> None:
    way = "admin site" if request is not None and request.path.startswith("/admin/") else "console"
    with origins.acting(name[:150], way, (request.META.get("REMOTE_ADDR") or "") if request is not None else ""):
        record(action, "account", name)


def _signed_in(sender, user, request=None, **_) -> None:
    _record(SIGNED_IN, user.get_username(), request)


def _signed_out(sender, user, request=None, **_) -> None:
    if user is not None:
        _record(SIGNED_OUT, user.get_username(), request)


def _locked_out(sender, request=None, username=None, **_) -> None:
    # Sent at each attempt while the account is locked, too, which is not counted: anybody could fill the log.
    if getattr(request, "axes_failures_since_start", None) is not None:
        _record(LOCKED_OUT, str(username or "")[:150], request)
