"""The executor: one process per device. It loads variants and runs the batches that gateways dispatch, nothing else.

Entry point: ``python -m workers.executor``. ``device.DeviceService`` puts the parts together; ``device_loop`` describes
the life of a batch. Imports ``workers.protocol`` and the latency model of ``workers.batching``, never
``workers.gateway`` or ``workers.node``.
"""
