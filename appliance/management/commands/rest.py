"""``manage.py rest``: send one request to this box's REST API."""

from __future__ import annotations

import json

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from appliance.demo.rest import RestError, client, pages
from appliance.secrets import CREDENTIALS, credentials


class Command(BaseCommand):
    help = "Send one request to this box's REST API, such as: rest POST nodes/box2/cordon/"
    requires_system_checks = ()

    def add_arguments(self, parser) -> None:
        """Method, path and body."""
        parser.add_argument("method", choices=["GET", "POST", "PATCH", "PUT", "DELETE"])
        parser.add_argument("path", help="below /api/v1/, such as nodes/")
        parser.add_argument("--data", default="", metavar="JSON", help="the body")
        parser.add_argument("--missing-ok", action="store_true", help="print null where nothing has that name (404)")

    def handle(self, *args, method: str, path: str, data: str, missing_ok: bool, **options) -> None:
        """Raises CommandError, with the status and the reason of a refusal."""
        file = settings.NEREUS.home / CREDENTIALS
        token = credentials(settings.NEREUS.home).get("api_token")
        if not token:
            raise CommandError(f"{file} has no API token; only the control plane's box has one")
        try:
            body = json.loads(data) if data else None
        except ValueError as error:
            raise CommandError(f"--data: must be JSON: {error}") from None
        try:
            with client(settings.NEREUS.console.url, token) as rest:
                answer = rest.request(method, f"/{path.lstrip('/')}", json=body)
                found = answer.json() if answer.is_success and answer.content else None
                if isinstance(found, dict) and "next" in found and "results" in found:
                    found = pages(rest, f"/{path.lstrip('/')}")
        except RestError as error:
            raise CommandError(str(error)) from None
        if answer.status_code == 404 and missing_ok:
            self.stdout.write("null")
        elif answer.is_success:
            self.stdout.write(json.dumps(found))
        else:
            raise CommandError(f"{method} {path}: HTTP {answer.status_code}: {answer.text[:500]}")
