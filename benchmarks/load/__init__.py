"""The load generator as a process of its own, over HTTP and gRPC.

:class:`.driver.Generator` starts ``python -m benchmarks.load.process``, which sends by :mod:`appliance.load`.
"""
