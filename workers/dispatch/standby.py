"""Memory for variants that stand by."""

from __future__ import annotations

#: part of a device's memory that planned and standby variants may take together: devices on the cores of one box share
#: its memory with everything else that runs there, and batches need memory of their own
MEMORY_SHARE = 0.5
