"""The evaluation: ``python -m benchmarks evaluation`` writes docs/evaluation.md and its plots.

Every claim of that page comes from simulations that this package runs and keeps.
"""
