"""Published stacks as a binding: a router, a queue for each device and application, a batch policy, and turn taking.

Queries are routed when they arrive and wait in the core for the device that the router chose. The entry point is
:class:`.binding.PublishedBinding`. Pure: imports the batch policies, the routers, and from late binding the options,
the latency correction and the timers.
"""
