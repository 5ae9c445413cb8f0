"""The data plane: gateways, nodes and executors, and the modules that they share.

Imports nothing of the control plane.
"""

#: the product's version, as in CHANGELOG.md; pyproject.toml, the REST schema and gateways take it from here
__version__ = "0.2.0"
