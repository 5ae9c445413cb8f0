"""The node daemon: a box's devices, its model cache and its executors.

It supervises one executor process for each device. Run by ``python -m workers.node``. May import :mod:`workers`.
"""
