"""Profile jobs: :mod:`.dispatch` orders them from nodes, :mod:`.results` stores their results."""
