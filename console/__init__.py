"""The web console: pages and the browsers' websocket.

Pages are in :mod:`.views`, the websocket in :mod:`.consumers`. Shows what registry and scheduler know, and changes it
through the REST API alone. May import all of the control plane.
"""
