"""Real gateways, and the other end of their link."""

from tests.gateway.conftest import control_plane, gateways

__all__ = ["control_plane", "gateways"]
