"""A cluster on one machine: each box is a network namespace.

Each has its own address, delays and losses.
"""
