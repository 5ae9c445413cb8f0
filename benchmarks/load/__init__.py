"""The load generator: a process of its own that sends queries over HTTP or gRPC and records the end of each.

Closed loops, and open loops at Poisson phases or given times. :class:`.driver.Generator` runs it,
:class:`.records.Records` is what comes back. The process imports nothing of the product.
"""
