"""The gateway: fronts, and the core that decides for them.

Fronts own sockets, checks and answers; the core owns queues, plan and devices.

Run by ``python -m workers.gateway``. :mod:`.edge` tells a query's way from bytes to its answer, :mod:`.core` how it is
decided on; :mod:`.gateway` puts the parts together.
May import :mod:`workers`, but neither :mod:`workers.executor` nor :mod:`workers.node`.
"""
