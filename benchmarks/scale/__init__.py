"""One control plane and hundreds of members that exist in the protocol alone: ``python -m benchmarks scale``.

``site`` runs the control plane and its members, ``filling`` writes its database, ``members`` is the process that plays
all nodes and a gateway over real links, ``__main__`` measures.
"""
