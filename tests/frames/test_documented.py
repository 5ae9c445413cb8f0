"""Docstrings of messages name their fields as they are."""

from __future__ import annotations

import re

import msgspec
import pytest

from workers.protocol import control, frames, gateways, specs

MESSAGES = [
    found
    for module in (control, frames, gateways, specs)
    for found in vars(module).values()
    if isinstance(found, type) and issubclass(found, msgspec.Struct) and found.__module__ == module.__name__
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: f"{message.__module__}.{message.__name__}")
def test_a_docstring_describes_only_fields_that_exist(message):
    described = set(re.findall(r"``(\w+)``:", message.__doc__ or ""))
    assert described <= set(message.__struct_fields__)
