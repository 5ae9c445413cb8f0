"""The binding of published stacks, which route queries on arrival.

It has a router, a queue for each device and application, and a batch policy. A query is routed when it arrives, and
waits in the core for the device that the router chose. Entry point: :class:`.binding.PublishedBinding`. ``routing`` has
the routers, ``policy`` the interface of batch policies, ``papers`` what each paper adds. Pure. May import
``workers.dispatch``, but not ``late``.
"""
