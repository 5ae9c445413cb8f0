"""Pure decisions about batches: which variant, which device, and when.

:mod:`.binding` is the interface, :func:`.bindings.create` makes the binding of a stack by its name (:mod:`.stacks`).
May import nothing else of Nereus.
"""
