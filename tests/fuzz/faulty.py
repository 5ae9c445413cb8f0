"""A target with a fault, to prove that faults are noticed."""

from __future__ import annotations


def seeds() -> list[bytes]:
    return [b"a seed"]


def check(data: bytes) -> None:
    assert data == b"a seed" or len(data) < 3, "a fault of the target's own"
