"""Members' connections in the control plane.

A connection is a :class:`.consumer.MemberConsumer`, of a node (``node_consumer``) or gateway (``gateway_consumer``).
``admission`` decides who becomes a member, ``standing`` follows its state in the registry, ``intake`` bounds what it
may send, ``configurations``, ``push`` and ``lag`` keep it up to date. ``presence`` tells silent members from an
absence of the control plane itself.
"""
