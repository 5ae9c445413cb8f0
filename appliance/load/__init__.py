"""The load generator: sends queries over HTTP or gRPC, records how each ends.

:class:`.sender.Sender` sends in closed loops, and in open loops at Poisson phases or given times;
:class:`.records.Records` is the result. The demo's load uses it, and benchmarks in a process of its own. It imports
nothing else of the product.
"""
