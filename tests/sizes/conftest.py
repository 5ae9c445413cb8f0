"""Real gateways and the other end of their link.

Fixtures of the console are here for the pages that it shows to staff.
"""

from tests.console.conftest import application, staff
from tests.gateway.conftest import control_plane, gateways

__all__ = ["application", "control_plane", "gateways", "staff"]
