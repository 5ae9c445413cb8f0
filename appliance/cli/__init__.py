"""``./nereus``: the ten most common actions on the command line.

It makes the console's REST calls, and imports no Django. Entry point: :func:`.main.main`. May import
:mod:`appliance.demo.rest` and :mod:`appliance.secrets`.
"""
