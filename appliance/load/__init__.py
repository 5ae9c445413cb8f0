"""The load generator: sends queries over HTTP or gRPC, records how each ends.

It sends in closed loops, and in open loops at Poisson phases or given times. :class:`.sender.Sender` runs in a process
of its own for measurements (:class:`.driver.Generator` starts ``python -m appliance.load.process``), and in the demo's.
:class:`.records.Records` is the result. It imports nothing else of the product, and gRPC only where it is asked for.
"""
