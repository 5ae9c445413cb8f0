"""Profile jobs, ordered from nodes and stored with their results.

:mod:`.dispatch` orders them, :mod:`.results` stores their results.
"""
