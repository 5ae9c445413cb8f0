"""Error responses as problem details (RFC 9457), ``application/problem+json``.

``type`` is ``about:blank`` where the status says it all (Section 4.2.1), else a ``urn:nereus:problem:…``. ``errors``
lists what is wrong field by field.
"""

from __future__ import annotations

import errno
import json
from http import HTTPStatus
from typing import Any

from django.core.exceptions import BadRequest, DisallowedHost, PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import OperationalError
from django.http import Http404, HttpResponse
from django.http.multipartparser import MultiPartParserError
from kombu.exceptions import OperationalError as BrokerError
from redis.exceptions import RedisError
from rest_framework import exceptions, serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.views import set_rollback

from registry.errors import Busy, Conflict, InputFault, InvalidInput, NoSpace, TooSlow, UploadTooLarge
from workers import log

logger = log.get("registry.api")

MEDIA_TYPE = "application/problem+json"
#: characters of what is wrong with a field: it may repeat a value, which may have a megabyte
LONGEST_DETAIL = 1000


class ProblemErrorSerializer(serializers.Serializer):
    field = serializers.CharField()
    detail = serializers.CharField()


class ProblemSerializer(serializers.Serializer):
    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    errors = ProblemErrorSerializer(many=True)


def body(status: int, detail: str, kind: str | None = None, errors: list[InputFault] = ()) -> dict[str, Any]:
    return {
        "type": f"urn:nereus:problem:{kind}" if kind else "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "errors": [{"field": fault.field, "detail": fault.detail} for fault in errors],
    }


def _invalid(faults: list[InputFault]) -> dict[str, Any]:
    lines = [f"{fault.field}: {fault.detail}" if fault.field else fault.detail for fault in faults]
    return body(400, "; ".join(lines), "invalid-input", faults)


DATABASE_FAILS = (
    "The database cannot be used now: it is locked, read-only or away; the log says which. Nothing was changed, "
    "and serving continues. Try again."
)

REDIS_FAILS = (
    "Redis cannot be used now: it is away or full (see the log). Serving continues. A change may have been stored "
    "all the same: look before you try again."
)
NO_SPACE = (
    "The control plane's disk is full ({}). Nothing was changed, and serving continues. Free space under NEREUS_HOME, "
    "such as by deleting variants that are not needed, then try again."
)

UNKNOWN_HOST = (
    "Host: the control plane does not answer under this name. Use an address or the host name of its box, or add the "
    "name to NEREUS_ALLOWED_HOSTS there and restart it."
)
#: whose traceback the log has, though they are none of ours
LOGGED = (OperationalError, RedisError, BrokerError)


def describe(error: BaseException | None) -> tuple[dict[str, Any], dict[str, str]]:
    match error:
        case InvalidInput():
            return _invalid(error.faults), {}
        case exceptions.ValidationError():
            return _invalid(flatten(error.detail)), {}
        case Conflict():
            errors = [InputFault(error.field, error.detail)] if error.field else []
            return body(409, error.detail, "conflict", errors), {}
        case UploadTooLarge():
            return body(413, str(error), "too-large", [InputFault(error.field, error.detail)]), {}
        case Busy():
            return body(503, error.detail, "busy"), {"Retry-After": str(error.retry_after_s)}
        case TooSlow():
            return body(408, f"The body came too slowly: {error}.", "too-slow"), {}
        case NoSpace():
            return body(507, NO_SPACE.format(error), "no-space"), {}
        case OSError() | OperationalError() if _is_full(error):
            return body(507, NO_SPACE.format("no space is left, or a quota is used up"), "no-space"), {}
        case OperationalError():
            return body(503, DATABASE_FAILS, "database"), {"Retry-After": "5"}
        case RedisError() | BrokerError():
            return body(503, REDIS_FAILS, "redis"), {"Retry-After": "5"}
        case Http404():
            return body(404, "There is nothing at this address."), {}
        case PermissionDenied():
            return body(403, "This is not allowed."), {}
        case RequestDataTooBig():
            return body(413, "The request's form fields are too large.", "too-large"), {}
        case DisallowedHost():
            return body(400, UNKNOWN_HOST, "unknown-host"), {}
        case MultiPartParserError() | SuspiciousOperation() | BadRequest():
            return body(400, f"The request cannot be understood: {error}"), {}
        case exceptions.APIException():
            headers = {}
            if getattr(error, "auth_header", None):
                headers["WWW-Authenticate"] = error.auth_header
            if getattr(error, "wait", None):
                headers["Retry-After"] = str(int(error.wait) + 1)
            return body(error.status_code, _text(error.detail)), headers
    return body(500, "Something went wrong here; the log says what."), {}


def _is_full(error: OSError | OperationalError) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return any(text in str(error) for text in ("disk is full", "No space left on device"))


def handle(error: Exception, context: dict[str, Any]) -> Response:
    problem, headers = describe(error)
    if problem["status"] == 500 or isinstance(error, LOGGED):
        request = context.get("request")
        logger.error("request_failed", path=getattr(request, "path", ""), exc_info=error)
    set_rollback()
    # The schema's view has renderers of its own, of YAML.
    context["request"].accepted_renderer = JSONRenderer()
    context["request"].accepted_media_type = MEDIA_TYPE
    return Response(problem, status=problem["status"], headers=headers, content_type=MEDIA_TYPE)


def flatten(detail: Any, field: str = "") -> list[InputFault]:
    """A validation error's tree as faults, fields joined with dots."""
    if isinstance(detail, dict):
        faults = []
        for key, value in detail.items():
            inner = field if key == "non_field_errors" else f"{field}.{key}".strip(".")
            faults += flatten(value, inner)
        return faults
    if isinstance(detail, list):
        if any(isinstance(item, dict | list) for item in detail):
            return [
                fault for i, item in enumerate(detail) if item for fault in flatten(item, f"{field}.{i}".strip("."))
            ]
        return [InputFault(field, _shortened(item)) for item in detail]
    return [InputFault(field, _shortened(detail))]


def _shortened(detail: Any) -> str:
    text = str(detail)
    return text if len(text) <= LONGEST_DETAIL else f"{text[:LONGEST_DETAIL]} …"


def _text(detail: Any) -> str:
    return "; ".join(fault.detail for fault in flatten(detail))


def render(status: int, detail: str, kind: str | None = None, errors: list[InputFault] = ()) -> HttpResponse:
    return HttpResponse(json.dumps(body(status, detail, kind, errors)), status=status, content_type=MEDIA_TYPE)


def render_error(error: BaseException | None) -> HttpResponse:
    problem, headers = describe(error)
    return HttpResponse(json.dumps(problem), status=problem["status"], content_type=MEDIA_TYPE, headers=headers)
