"""The registry's REST API: thin views over :mod:`registry.services`."""
