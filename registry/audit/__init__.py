"""Audit: every change of what operators control.

Each entry has who, what, before, after, when and from where. Entry points: :mod:`.tracking` records changes of rows by
itself, :func:`.recording.record` anything else. Entries are rows, for the console, and JSON lines in
``NEREUS_HOME/logs/audit.jsonl``. Secrets are in neither.
"""
