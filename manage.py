#!/usr/bin/env python
"""Django's command line, ``manage.py up``, which starts the local appliance, and what ``./nereus`` does."""

import os
import sys

from appliance.cli import COMMANDS, OPTIONS


def main() -> None:
    if sys.argv[1:2] == ["up"]:
        # Without Django: nothing of the control plane may keep serving from starting.
        from appliance.local.up import main as up

        sys.exit(up(sys.argv[2:]))
    if sys.argv[1:2] and sys.argv[1].partition("=")[0] in COMMANDS + OPTIONS:
        from appliance.cli.main import main as act

        sys.exit(act(sys.argv[1:]))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")
    from django.core.management import execute_from_command_line

    if sys.argv[1:] in ([], ["help"], ["-h"], ["--help"]):
        print(f"Actions of operators, each with a --help of its own: {', '.join(COMMANDS)}")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
