"""The executing halves of the papers, a module each; any of them can be deleted.

A module has ``STACKS`` to serve with, and its own batch ``POLICIES`` and ``ROUTERS`` by name. The planning half is the
folder of the same name in ``scheduler/stacks``. Pure. May import ``workers.dispatch``, but not ``late``.
"""
