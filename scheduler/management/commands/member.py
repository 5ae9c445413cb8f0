"""``manage.py member``: whether a node or gateway has joined and follows the plan."""

from __future__ import annotations

import time

from django.core.management.base import BaseCommand, CommandError

from registry.models import Gateway, Node
from scheduler.members.following import lacking

#: seconds between two looks
AGAIN_S = 0.5
KINDS = {"node": Node, "gateway": Gateway}


class Command(BaseCommand):
    help = "Say whether a node or gateway has joined and follows the plan in force; status 0 if it does."

    def add_arguments(self, parser) -> None:
        parser.add_argument("kind", choices=list(KINDS))
        parser.add_argument("name")
        parser.add_argument("--wait", type=float, default=0.0, metavar="S", help="seconds to wait for it (default 0)")

    def handle(self, *args, kind: str, name: str, wait: float, **options) -> None:
        until = time.monotonic() + wait
        while reasons := lacking(KINDS[kind], name):
            if time.monotonic() >= until:
                raise CommandError("; ".join(reasons))
            time.sleep(AGAIN_S)
        self.stdout.write(f"{kind} {name} has joined and follows the plan")
