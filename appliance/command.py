"""The command ``nereus``, which ``manage.py`` and ``./nereus`` call, too.

``up`` starts the appliance, an operator's actions go to :mod:`appliance.cli`, and everything else is Django's.
"""

from __future__ import annotations

import os
import sys

from appliance.cli import COMMANDS, OPTIONS


def manage() -> None:
    if sys.argv[1:2] == ["up"]:
        # Without Django: nothing of the control plane may keep serving from starting.
        from appliance.local.up import main as up

        sys.exit(up(sys.argv[2:]))
    if sys.argv[1:2] and sys.argv[1].partition("=")[0] in COMMANDS + OPTIONS:
        _act()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")
    from django.core.management import execute_from_command_line

    if sys.argv[1:] in ([], ["help"], ["-h"], ["--help"]):
        print(f"Actions of operators, each with a --help of its own: {', '.join(COMMANDS)}")
    execute_from_command_line(sys.argv)


def main() -> None:
    """``nereus``, whose help is about an operator's actions."""
    if sys.argv[1:] in ([], ["-h"], ["--help"]):
        _act()
    manage()


def _act() -> None:
    from appliance.cli.main import main as act

    sys.exit(act(sys.argv[1:]))
