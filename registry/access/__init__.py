"""Access: roles, and the one table of who may do what.

Entry point: :func:`~registry.access.table.least`. May import registry's models and Django; pages, REST, admin site and
websockets ask it.
"""
