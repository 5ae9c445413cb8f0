"""Benchmarks: ``python -m benchmarks`` (or ``make bench``) runs the usual ones.

``python -m benchmarks NAME`` runs one of them, and docs/benchmarks.md describes all. Figures are printed.
"""
