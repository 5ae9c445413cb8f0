"""Outgoing webhooks: signed POST requests to addresses that operators name.

They are sent when repairs come and go and plans change. Entry point: :func:`.outgoing.deliver`. :mod:`.targets` decides
which addresses may be reached. May import the registry.
"""
