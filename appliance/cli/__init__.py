"""``./nereus``: the most common actions on the command line, and any other.

It makes the console's REST calls, and imports no Django. Entry point: :func:`.main.main`; on a box that Ansible
installed, where ``nereus`` is manage.py with the box's settings, manage.py hands :data:`COMMANDS` over. May import
:mod:`appliance.demo.rest` and :mod:`appliance.secrets`.
"""

#: what :mod:`.main` has parsers for
COMMANDS = ("status", "applications", "upload", "slo", "plan", "nodes", "cordon", "join", "try", "key", "rest")
#: options of :mod:`.main` that may stand before a command
OPTIONS = ("--url", "--token-file", "--ca-file", "--json")
