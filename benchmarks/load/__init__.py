"""The load generator: a process of its own that sends queries.

It sends them over HTTP or gRPC and records the end of each, in closed loops, and in open loops at Poisson phases or
given times. :class:`.driver.Generator` runs it, :class:`.records.Records` is its result. The process imports nothing of
the product.
"""
