"""Strategies: pure functions from a problem to an allocation.

Entry points: :mod:`.strategies` by name, :mod:`.problem` for their input and output, :mod:`.verification` to check a
result. May import the registry of :mod:`scheduler.stacks`, and the latencies and policy tables of ``workers.dispatch``.
"""
