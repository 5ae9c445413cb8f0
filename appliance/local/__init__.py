"""The local supervisor: starts the appliance's processes in order, watches them, and ends them together.

Entry point: :func:`.up.up`, behind ``manage.py up``. :mod:`.services` lists the processes, :mod:`.supervisor` keeps
them running. Only :mod:`.firststart` imports Django.
"""
