"""Instances (a variant on a device) as they are now: their states, and which devices could sleep.

Entry points: :func:`.states.instances` reads registry and telemetry; :func:`.sleep.advice` is pure. May import
``registry``, ``scheduler`` and ``workers/dispatch``.
"""
