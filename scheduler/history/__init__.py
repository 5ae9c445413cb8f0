"""The cluster's history, for up to a year.

It has rows of 10 s to a day, and marks of what happened when. Entry points: :func:`.recording.record`, which
periodically folds the per-second statistics in Redis into rows, and :mod:`.reading`, which answers for any range.
:mod:`.folding`, :mod:`.packing` and :mod:`.figures` are pure. May import :mod:`scheduler.telemetry`,
:mod:`scheduler.live` and ``registry``.
"""
