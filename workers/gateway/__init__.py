"""The gateway: fronts, which own sockets, checks and answers, and the core, which owns queues, plan and devices.

Run by ``python -m workers.gateway``. :mod:`.core` tells the life of a query, :mod:`.gateway` puts the parts together.
May import :mod:`workers`, but neither :mod:`workers.executor` nor :mod:`workers.node`.
"""
