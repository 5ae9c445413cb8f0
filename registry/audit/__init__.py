"""Audit: every change of what operators control.

Each entry has who, what, before, after, when and from where. Entry points: :mod:`.tracking` records changes of rows by
itself, :func:`.recording.record` anything else. Entries contain no secrets.
"""
