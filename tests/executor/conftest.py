from __future__ import annotations

import pytest

from tests.executor.harness import Executor


@pytest.fixture
async def executor(tmp_path):
    async with Executor(tmp_path) as running:
        yield running
