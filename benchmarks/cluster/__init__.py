"""A cluster on one machine, and its rows of the fault matrix: ``python -m benchmarks cluster``.

Each box is a network namespace (:mod:`.network`) with an address, delays and losses of its own and a share of the
machine (:mod:`.share`). :mod:`.site` is the cluster, :mod:`.rows` what is done to it, :mod:`.simulated` its simulation.
"""
