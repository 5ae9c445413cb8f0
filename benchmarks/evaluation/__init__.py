"""The evaluation, which writes docs/evaluation.md and its plots.

It is run by ``python -m benchmarks evaluation`` (or ``make evaluation``).

Every claim of that page comes from simulations that this package runs; finished runs are kept, so that an interrupted
evaluation goes on where it stopped.
"""
