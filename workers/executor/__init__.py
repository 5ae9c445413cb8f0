"""The executor: one process per device, which loads variants and runs batches.

Entry point: ``python -m workers.executor``. ``device.DeviceService`` puts the parts together; ``device_loop`` tells
the life of a batch. Imports ``workers.protocol``, ``workers.v2.tensors``, and ``workers.dispatch`` for latencies and
the memory of standby variants, never ``workers.gateway`` or ``workers.node``.
"""
