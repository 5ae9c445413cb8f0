"""Decisions about batches: which one runs on which variant, on which device, and when. Pure.

:mod:`.binding` is the interface, :func:`.bindings.create` makes the binding of a stack by its name (:mod:`.stacks`).
May import nothing else of ours.
"""
