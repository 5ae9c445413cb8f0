"""Looking at uploads before anything trusts them, in a process of its own with limits.

:mod:`.sandbox` is the control plane's side. Everything else runs inside the limited process and does not import Django.
"""
