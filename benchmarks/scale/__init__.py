"""One control plane and hundreds of members that exist in the protocol alone.

They have real websockets and send real frames.

``plane`` runs the control plane's processes, ``registry`` fills its database, ``members`` is the process that plays all
nodes and a gateway, ``pages`` paints the console in a browser, ``__main__`` measures. The entry point is
``python -m benchmarks scale``.
"""
