"""Parts of :mod:`benchmarks.query_path`."""
