"""Instances (a variant on a device) as they are, and devices that are slow.

:func:`.states.instances` reads registry and telemetry; plans count less on interfered devices (:mod:`.interference`).
"""
