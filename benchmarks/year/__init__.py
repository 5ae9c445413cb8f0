"""A year in an hour: ``python -m benchmarks year``."""
