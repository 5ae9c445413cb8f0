"""Memory that a process frees after a batch is there for the next one."""

from __future__ import annotations

import subprocess
import sys

BATCHES = """
import resource, sys
from workers import heap

kept = heap.keep_freed() if sys.argv[1] == "kept" else None
assert kept is not False, "no glibc"

def batch():
    tensors = [b"x" * 600_000 for _ in range(16)]
    del tensors

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

for _ in range(5):
    batch()
before = faults()
for _ in range(20):
    batch()
print(faults() - before)
"""
LARGE = """
from workers import heap
heap.keep_freed()
held = lambda: int(open("/proc/self/statm").read().split()[1]) * 4096
before = held()
large = [b"x" * 40_000_000 for _ in range(4)]
assert held() - before > 150_000_000
del large
print(held() - before)
"""


def printed(script: str, *arguments: str) -> int:
    ran = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    return int(ran.stdout)


def test_batches_find_the_memory_of_those_before_them():
    pages = 20 * 16 * 600_000 // 4096
    assert printed(BATCHES, "kept") < pages / 20 < printed(BATCHES, "not")


def test_what_is_much_larger_goes_back_to_the_system():
    assert printed(LARGE) < 10_000_000
