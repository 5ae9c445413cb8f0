"""Instances (a variant on a device) as they are now, and sleep advice.

They are described by their states; sleep advice says which devices could sleep. Entry points: :func:`.states.instances`
reads registry and telemetry; :func:`.sleep.advice` is pure. May import ``registry``, ``scheduler`` and
``workers/dispatch``.
"""
