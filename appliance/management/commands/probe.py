"""``manage.py probe``: whether this box's part of the appliance serves."""

from __future__ import annotations

import asyncio
import sys
import time

import httpx2
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from appliance.local import probes, query
from appliance.local.roles import ALL, BoxRole, Roles, named, parse
from appliance.secrets import credentials
from workers.settings import Settings

#: seconds for one answer, and between two looks
ANSWER_S, AGAIN_S = 5.0, 0.5


class Command(BaseCommand):
    help = "Say whether gateway, node and console of this box answer; status 0 if all of them do."
    requires_system_checks = ()

    def add_arguments(self, parser) -> None:
        parser.add_argument("--wait", type=float, default=0.0, metavar="S", help="seconds to wait for them (default 0)")
        parser.add_argument("--only", default="", metavar="ROLES", help="the box's roles: control, gateway, node")
        parser.add_argument(
            "--query",
            action="store_true",
            help="also send one query to each application through this box's gateway; the API key is the one of "
            "credentials.json, or a line on standard input where this box has no such file",
        )

    def handle(self, *args, wait: float, only: str, query: bool, **options) -> None:
        """Raises CommandError, with the reason of each that does not answer."""
        try:
            roles = parse(only) if only else ALL
        except ValueError as error:
            raise CommandError(f"--only: {error}") from None
        if query and BoxRole.GATEWAY not in roles:
            raise CommandError("--query: needs a gateway, which --only leaves out")
        key = _api_key() if query else ""
        until = time.monotonic() + wait
        while True:
            silent, answered = asyncio.run(_look(settings.NEREUS, roles, key))
            if not silent:
                break
            if time.monotonic() >= until:
                raise CommandError("; ".join(silent))
            time.sleep(AGAIN_S)
        self.stdout.write(
            f"{named(roles)} of this box answer" + (", and all devices are up" if BoxRole.NODE in roles else "")
        )
        if query:
            self.stdout.write(f"a query was answered for: {', '.join(answered) or 'no application; there is none'}")


def _api_key() -> str:
    key = credentials(settings.NEREUS.home).get("api_key") or sys.stdin.readline().strip()
    if not key:
        raise CommandError("--query: an API key is needed, on standard input; this box has no credentials.json")
    return key


async def _look(values: Settings, roles: Roles, key: str) -> tuple[list[str], list[str]]:
    """Reasons why something does not answer, and the applications that did."""
    silent = await _silent(values, roles)
    if silent or not key:
        return silent, []
    try:
        answered, refused = await query.ask_all(values.http.url, key, ANSWER_S)
    except httpx2.HTTPError as error:
        return [f"gateway at {values.http.url}: {error!r}"], []
    return refused, answered


async def _silent(values: Settings, roles: Roles) -> list[str]:
    """Processes that do not answer, with reasons."""
    asked = {
        BoxRole.GATEWAY: (values.http.url, "/v2/health/live", b""),
        # The answer of a node, all of whose devices are up.
        BoxRole.NODE: (values.node_http.url, "/health", b'"status":"ok"'),
        BoxRole.CONTROL: (values.console.url, "/health/", b""),
    }
    looks = {
        f"{'console' if role is BoxRole.CONTROL else role} at {url}": probes.http(url + path, holding=word)
        for role, (url, path, word) in asked.items()
        if role in roles
    }
    answers = await asyncio.gather(*(probes.ask(probe, ANSWER_S) for probe in looks.values()))
    return [f"{name}: {why}" for name, why in zip(looks, answers, strict=True) if why is not None]
