"""The node daemon: a box's devices, its model cache, and supervision of one executor process for each device.

Run by ``python -m workers.node``. May import :mod:`workers`.
"""
