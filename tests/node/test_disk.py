"""Private files that are replaced whole."""

from __future__ import annotations

import os
import stat

import pytest

from tests.full_disks import full_disk
from workers import disk


def test_a_file_is_private_from_its_first_moment_and_replaced_whole(home):
    path = home / "members" / "a.json"
    old_umask = os.umask(0)
    try:
        disk.write_private(path, b"one")
        with path.open("rb") as reader:
            disk.write_private(path, b"two")
            assert reader.read() == b"one"
    finally:
        os.umask(old_umask)
    assert disk.read(path) == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["a.json"]


def test_a_failed_write_leaves_the_old_content_and_no_litter(home):
    path = home / "a.json"
    disk.write_private(path, b"one")
    with full_disk(10), pytest.raises(OSError):
        disk.write_private(path, b"x" * 1000)
    assert disk.read(path) == b"one"
    assert os.listdir(home) == ["a.json"]


def test_a_missing_file_reads_as_none(home):
    assert disk.read(home / "none") is None


def test_names_become_file_names_without_collisions():
    names = ["box", "box/1", "box_1", "../x", "..", "n" * 63, "n" * 65, "n" * 66, "é", "è", ".hidden"]
    safe = [disk.safe_name(name) for name in names]
    assert len(set(safe)) == len(names)
    assert all("/" not in name and not name.startswith(".") and len(name) <= 64 for name in safe)
    assert safe[0] == "box"
