"""The local supervisor, which starts, watches and ends the appliance's processes.

They start in order and end together. Entry point: :func:`.up.up`, behind ``manage.py up``. :mod:`.services` lists the
processes, :mod:`.supervisor` keeps them running. Only :mod:`.firststart` imports Django.
"""
