#!/usr/bin/env python
"""Django's command line, ``manage.py up``, which starts the local appliance, and what ``./nereus`` does."""

from appliance.command import manage

if __name__ == "__main__":
    manage()
