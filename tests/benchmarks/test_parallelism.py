"""The study of threads: every configuration runs, as the table says."""

from __future__ import annotations

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks import parallelism
from benchmarks.models import tiny

pytestmark = pytest.mark.wide


def test_each_batch_size_is_measured_with_each_configuration(tmp_path):
    rows = parallelism.study(tiny(tmp_path), cores=2, batches=(1, 3), rounds=1, seconds=0.01)
    names = [one.name for one in parallelism.configurations(2)]
    assert [(row["batch"], row["threads"]) for row in rows] == [(batch, name) for batch in (1, 3) for name in names]
    assert all(row["rows/s"] > 0 and row["mean ms"] > 0 and row["CPU ms a row"] >= 0 for row in rows)
    threads = {row["threads"]: (row["intra"], row["inter"], row["callers"]) for row in rows}
    assert threads["as served"] == (2, 1, 1) and threads["as InfAdapter"] == (1, 1, 2)


@pytest.mark.parametrize("wrong", [["--cores", "0"], ["--seconds", "0"], ["--batches", "0"], ["--rounds", "-1"]])
def test_what_cannot_be_measured_is_refused(wrong, capsys):
    assert benchmarks.main(["parallelism", *wrong]) == 2
    assert f"{wrong[0]}: must be" in capsys.readouterr().err
