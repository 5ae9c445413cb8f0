"""The gateway: fronts, and the core that decides for them.

Fronts own sockets, checks and answers; the core owns queues, plan and devices.

Run by ``python -m workers.gateway``. :mod:`.core` tells the life of a query, :mod:`.gateway` puts the parts together.
May import :mod:`workers`, but neither :mod:`workers.executor` nor :mod:`workers.node`.
"""
