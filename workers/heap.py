"""Heap settings of the C library for processes that receive tensors."""

from __future__ import annotations

import ctypes

#: parameters of mallopt(3), from glibc's malloc.h
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
#: bytes of freed memory to keep at the heap's end, and the size from which memory is mapped outside of the heap
_KEPT, _OWN = 32 * 1024 * 1024, 8 * 1024 * 1024


def keep_freed() -> bool:
    """Keep freed memory for the next batch: to fault it in again takes a tenth."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _OWN) and mallopt(_TRIM_THRESHOLD, _KEPT))
