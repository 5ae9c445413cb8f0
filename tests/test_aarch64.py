"""ARM boxes: tables of numbers, compared with the kernel's own headers."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest

from workers.confinement import limits, seccomp, syscalls

HEADERS = Path("/usr/include")
#: 64-bit ARM has the numbers that all newer machines share
GENERIC = HEADERS / "asm-generic/unistd.h"
needs_headers = pytest.mark.skipif(not GENERIC.exists(), reason="no headers of the kernel here (linux-libc-dev)")


def generic() -> dict[str, int]:
    found = re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", GENERIC.read_text(), re.MULTILINE)
    return {name: int(number) for name, number in found}


@needs_headers
def test_the_numbers_of_calls_on_arm_are_those_of_the_kernel(monkeypatch):
    known = generic()
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    listed = syscalls.numbers()
    assert len(listed) > 80
    assert listed == {name: known[name] for name in listed if name in known}, "each is there under its number"
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    # Calls that are said to be missing there are missing.
    assert not [name for name in syscalls.numbers().keys() - listed.keys() if name in known]
    assert seccomp._SYS_SECCOMP["aarch64"] == known["seccomp"]
    assert limits._CAPSET["aarch64"] == known["capset"]


@needs_headers
def test_the_architecture_on_arm_is_the_kernels(monkeypatch):
    machine = int(re.search(r"#define EM_AARCH64\s+(\d+)", (HEADERS / "linux/elf-em.h").read_text())[1])
    audit = (HEADERS / "linux/audit.h").read_text()
    assert re.search(r"AUDIT_ARCH_AARCH64\s+\(EM_AARCH64\|__AUDIT_ARCH_64BIT\|__AUDIT_ARCH_LE\)", audit)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert syscalls.architecture() == machine | 0x80000000 | 0x40000000


@needs_headers
def test_landlocks_numbers_are_the_same_everywhere():
    known = generic()
    calls = ("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self")
    assert [known[name] for name in calls] == [444, 445, 446]


def test_a_filter_can_be_made_for_arm(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    for accept, gpu in ((False, False), (True, False), (True, True)):
        program = seccomp._program(accept, gpu)
        assert all(len(instruction) == 8 for instruction in program) and len(program) < 4096
