"""Benchmarks: ``python -m benchmarks [NAME]``, described in docs/benchmarks.md."""
