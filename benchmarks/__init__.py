"""Benchmarks: ``python -m benchmarks`` (or ``make bench``) runs all and writes docs/benchmarks.md."""
