"""``./nereus``: the ten commonest acts on the command line, made of the console's REST calls. Imports no Django.

Entry point: :func:`.main.main`. May import :mod:`appliance.demo.rest` and :mod:`appliance.secrets`.
"""
