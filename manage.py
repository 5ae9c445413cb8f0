#!/usr/bin/env python
"""Django's command line, and ``manage.py up``, which starts the local appliance."""

import os
import sys


def main() -> None:
    if sys.argv[1:2] == ["up"]:
        # Without Django: nothing of the control plane may keep serving from starting.
        from appliance.local.up import main as up

        sys.exit(up(sys.argv[2:]))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
