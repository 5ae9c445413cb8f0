"""Inspection of uploads before anything trusts them, in a confined process.

:mod:`.sandbox` is the control plane's side. Everything else runs inside the limited process and does not import Django.
"""
