"""Strategies: pure functions from a problem to an allocation.

Entry points: :mod:`.strategies` by name, :mod:`.problem` for their input and output, :mod:`.verification` to check a
result. Imports nothing else of the project.
"""
