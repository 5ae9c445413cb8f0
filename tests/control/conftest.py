"""Worlds that several files of these tests begin with."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from registry.models import Application, Variant
from tests.control.world import application, listening, node, variant


@pytest.fixture
def digits(clean_redis) -> tuple[Application, Variant, Variant]:
    listening(clean_redis)
    node()
    owner = application()
    return owner, variant(owner, "quick", 90, 5), variant(owner, "good", 99, 40)


@pytest.fixture
def box():
    return node()


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder whose path is short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="nc-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
