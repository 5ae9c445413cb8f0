"""``manage.py probe``: whether the appliance on this box serves and its console answers."""

from __future__ import annotations

import asyncio
import time

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from appliance.local import probes
from workers.settings import Settings

#: seconds for one answer, and between two looks
ANSWER_S, AGAIN_S = 5.0, 0.5


class Command(BaseCommand):
    """Ends with status 0 as soon as gateway, node (all devices up) and console (with database and Redis) answer."""

    help = "Say whether gateway, node and console of this box answer; status 0 if all of them do."
    requires_system_checks = ()

    def add_arguments(self, parser) -> None:
        parser.add_argument("--wait", type=float, default=0.0, metavar="S", help="seconds to wait for them (default 0)")

    def handle(self, *args, wait: float, **options) -> None:
        """Raises CommandError, with the reason of each that does not answer."""
        until = time.monotonic() + wait
        while True:
            silent = asyncio.run(_silent(settings.NEREUS))
            if not silent:
                self.stdout.write("gateway, node and console answer, and all devices are up")
                return
            if time.monotonic() >= until:
                raise CommandError("; ".join(silent))
            time.sleep(AGAIN_S)


async def _silent(values: Settings) -> list[str]:
    """Which do not answer, and why."""
    asked = {
        f"gateway at {values.http.url}": probes.http(values.http.url + "/v2/health/live"),
        # Of a node, all of whose devices are up.
        f"node at {values.node_http.url}": probes.http(values.node_http.url + "/health", holding=b'"status":"ok"'),
        f"console at {values.console.url}": probes.http(values.console.url + "/health/"),
    }
    answers = await asyncio.gather(*(probes.ask(probe, ANSWER_S) for probe in asked.values()))
    return [f"{name}: {why}" for name, why in zip(asked, answers, strict=True) if why is not None]
