"""Strategies: pure functions from a problem to an allocation.

Entry points: :func:`.standby.with_standby` (`nereus`), :mod:`.problem` for input and output, :mod:`.verification` to
check a result. The published systems, and all strategies by name, are in :mod:`scheduler.stacks`. May import the
latencies and policy tables of ``workers.dispatch``.
"""
