"""``manage.py join-command``: print the command by which another box joins."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from datetime import timedelta

from django.core.management.base import BaseCommand, CommandError

from appliance.management.existing import check_database
from registry.errors import Conflict
from registry.joining import LONGEST, SHORTEST, join_line
from workers import log

_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def duration(text: str) -> timedelta:
    """``30m``, ``12h`` or ``2d``."""
    found = re.fullmatch(r"(\d{1,5})([mhd])", text)
    given = timedelta(**{_UNITS[found[2]]: int(found[1])}) if found else timedelta()
    if not SHORTEST <= given <= LONGEST:
        raise ArgumentTypeError(f"{text!r}: must be minutes, hours or days such as 30m, 12h or 2d, from 1m to 30d")
    return given


class Command(BaseCommand):
    help = "Print the line that makes another box a node or gateway of this control plane; it works once."

    def add_arguments(self, parser) -> None:
        parser.add_argument("--role", required=True, choices=["node", "gateway"], help="what the other box becomes")
        parser.add_argument("--control", metavar="URL", default="", help="where that box finds this console")
        parser.add_argument(
            "--ttl", type=duration, default=timedelta(hours=1), help="time until the token expires (default: 1h)"
        )

    def handle(self, *args, role: str, control: str, ttl: timedelta, **options) -> None:
        log.configure("join-command", "warning")
        check_database()
        try:
            line = join_line(role, control, ttl)
        except Conflict as error:
            raise CommandError(str(error)) from None
        for remark in line.remarks:
            self.stdout.write(remark)
        if line.warning:
            self.stdout.write(f"Warning: {line.warning}")
        self.stdout.write(line.command)
