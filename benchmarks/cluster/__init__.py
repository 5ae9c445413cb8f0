"""A cluster on one machine: each box a network namespace, with its own address, delays and losses."""
