"""Real gateways, the other end of their link, and the console's staff."""

from tests.console.conftest import application, staff
from tests.executor.conftest import executor
from tests.gateway.conftest import control_plane, gateways

__all__ = ["application", "control_plane", "executor", "gateways", "staff"]
