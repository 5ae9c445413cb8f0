#!/usr/bin/env python
"""Django's command line, ``manage.py up``, which starts the local appliance, and what ``./nereus`` does."""

import os
import sys

from appliance.cli import COMMANDS


def main() -> None:
    if sys.argv[1:2] == ["up"]:
        # Without Django: nothing of the control plane may keep serving from starting.
        from appliance.local.up import main as up

        sys.exit(up(sys.argv[2:]))
    if sys.argv[1:2] and sys.argv[1] in COMMANDS:
        from appliance.cli.main import main as act

        sys.exit(act(sys.argv[1:]))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
