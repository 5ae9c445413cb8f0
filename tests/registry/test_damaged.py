"""Damaged and mutated ONNX files are accepted or refused in words, within limits; nothing is left behind."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from registry.errors import InvalidInput
from registry.inspection import model, sandbox
from tests.registry import graphs, mutations
from tests.registry.test_hostile import left_behind
from workers.settings import Settings

#: what inspection may say when the runtime itself ended; everything else names a fault of the file
ENDED = re.compile(
    r"crashes the runtime that loads it \(SIG|NEREUS_INSPECT_(SECONDS|MEMORY_MB)|more memory than this box"
)


def _inspect_all(seeds: range, limited: Settings, tmp_path: Path) -> dict[str, int]:
    """Inspect the files of all seeds in the sandbox; how many ended in which way."""
    outcomes = {"accepted": 0, "refused": 0, "ended": 0}
    files = len(os.listdir("/proc/self/fd"))
    path = tmp_path / "m.onnx"
    for seed in seeds:
        path.write_bytes(mutations.mutated(seed))
        started = time.monotonic()
        try:
            facts = sandbox.inspect_model(path, graphs.SIGNATURE, limited)
            outcomes["accepted"] += 1
            assert facts["nodes"] > 0
        except InvalidInput as refused:
            for fault in refused.faults:
                assert fault.field.startswith("file") and 5 < len(fault.detail) < 1000, (seed, fault)
                assert "the log says why" not in fault.detail, (seed, fault)
            outcomes["ended" if ENDED.search(str(refused)) else "refused"] += 1
        # The process' own limit on the wall, however busy the box.
        assert time.monotonic() - started < 3 * limited.inspect_seconds + 20, seed
        assert left_behind(limited) == [], seed
        assert sorted(os.listdir(tmp_path)) == ["home", "m.onnx"], seed
    assert len(os.listdir("/proc/self/fd")) <= files + 2
    return outcomes


@pytest.mark.wide
def test_damaged_files_end_in_words(limited, tmp_path):
    outcomes = _inspect_all(range(24), limited, tmp_path)
    assert outcomes["refused"] > 5


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_a_thousand_damaged_files_end_in_words(limited, tmp_path):
    outcomes = _inspect_all(range(1000, 2000), limited, tmp_path)
    print(outcomes)
    assert outcomes["accepted"] > 20 and outcomes["refused"] > 200


def _read_all(seeds: range, tmp_path: Path) -> tuple[int, int]:
    accepted = refused = 0
    path = tmp_path / "m.onnx"
    for seed in seeds:
        path.write_bytes(mutations.mutated(seed))
        try:
            model.read(str(path))
            accepted += 1
        except InvalidInput as error:
            refused += 1
            assert all(fault.field.startswith("file") for fault in error.faults), seed
    return accepted, refused


def test_checks_before_the_run_take_any_file(tmp_path):
    """They run in this process, where nothing would hide a crash or an exception of another kind."""
    accepted, refused = _read_all(range(10_000, 10_500), tmp_path)
    assert accepted > 50 and refused > 50


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_checks_before_the_run_take_a_hundred_thousand_files(tmp_path):
    accepted, refused = _read_all(range(20_000, 120_000), tmp_path)
    assert accepted > 10_000 and refused > 10_000
