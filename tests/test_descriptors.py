"""Every process may open as many files as permitted, whatever the shell's or systemd's soft limit."""

from __future__ import annotations

import subprocess
import sys

from workers.descriptors import WANTED

LIMITS = "import resource; print(*resource.getrlimit(resource.RLIMIT_NOFILE))"


def limits(soft: int, hard: int, code: str) -> list[int]:
    lowered = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
    done = subprocess.run([sys.executable, "-c", lowered + code], capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


def test_the_soft_limit_is_raised_and_children_inherit_it():
    inherited = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {LIMITS!r}], check=True)"
    raise_limit = "from workers.descriptors import raise_limit; raise_limit()\n"
    assert limits(256, 4096, raise_limit + inherited) == [4096, 4096]
    assert limits(4096, 4096, raise_limit + inherited) == [4096, 4096]
    assert WANTED > 4096
