"""A load generator that keeps what became of each query, for servers under pressure: see :mod:`.process`."""
