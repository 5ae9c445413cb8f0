"""Messages between processes: one typed definition for both ends.

:mod:`.frames` and :mod:`.gateways` go over sockets of the data plane, :mod:`.control` to and from the control plane.
May import nothing else of Nereus.
"""
