"""Batch policies of published systems: which queries of one queue run together, and when.

Entry point: :func:`.policies.create`; ``base`` is the interface, ``forming`` what the policies share. The simulator
adds a policy of its own (``scheduler/simulation/relief``). Pure. May import ``workers.dispatch.latency``.
"""
