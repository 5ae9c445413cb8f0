"""The web console: pages (:mod:`.views`) and the browsers' websocket (:mod:`.consumers`).

Shows what registry and scheduler know, and changes it through the REST API alone. May import all of the control plane.
"""
