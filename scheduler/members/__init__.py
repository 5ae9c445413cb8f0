"""Members' connections in the control plane.

A connection is a :class:`.link.AcceptedLink`, of a ``node`` or ``gateway``. ``admission`` decides who becomes a member,
``standing`` follows its state in the registry, ``intake`` bounds what it may send, ``configurations`` and
``lag`` keep it up to date. ``presence`` tells silent members from an absence of the control plane itself.
"""
