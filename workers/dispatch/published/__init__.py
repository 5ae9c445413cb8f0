"""The binding of published stacks: a router, a queue for each device and application, a batch policy, time slices.

A query is routed when it arrives, and waits in the core for the device that the router chose. Entry point:
:class:`.binding.PublishedBinding`. ``routing`` has the routers, ``batching`` the batch policies. Pure. May import
``workers.dispatch``: the interface, options, latency, latency correction, back-off and timers.
"""
