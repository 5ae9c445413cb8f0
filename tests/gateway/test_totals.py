"""Totals that several gateways share by files: nothing is lost, half-read or believed that cannot be."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.running import ROOT
from workers.gateway.shared_stats import SharedStats, add
from workers.gateway.stats import Totals
from workers.protocol.gateways import ApplicationTotals


@pytest.fixture
def files(tmp_path) -> list[Path]:
    return [tmp_path / f"gateway-{number}.totals" for number in (1, 2, 3)]


def total(shared: SharedStats, name: str, success: int = 0) -> ApplicationTotals:
    """What this process, which counted ``success``, says of all."""
    return add(ApplicationTotals(success=success), *(totals.get(name) for totals in shared.elsewhere()))


def test_all_fields_that_are_counted_are_shared():
    assert [field.name for field in dataclasses.fields(Totals)] == list(ApplicationTotals.__struct_fields__)


def test_everybody_knows_the_sum(files):
    shared = [SharedStats(files, own) for own in range(3)]
    for own, one in enumerate(shared):
        one.write({"a": Totals(success=10**own, success_s=0.5, last_success_unix=100.0 + own), "b": Totals(refused=1)})
    for own, one in enumerate(shared):
        assert total(one, "a", 10**own).success == 111
    sums = add(*(totals["a"] for totals in SharedStats(files, 0).elsewhere()))
    assert (sums.success_s, sums.last_success_unix) == (1.5, 102.0)


def test_a_process_that_died_is_continued(files):
    first, second = SharedStats(files, 0), SharedStats(files, 1)
    first.write({"a": Totals(success=5)})
    second.write({"a": Totals(success=7), "gone": Totals(success=2)})
    # It dies without a word; whoever takes its place begins to count anew.
    again = SharedStats(files, 1)
    assert total(again, "a").success == 12
    again.write({})
    again.write({"a": Totals(success=1)})
    assert total(first, "a", 5).success == 13
    assert total(again, "a", 1).success == 13
    third = SharedStats(files, 1)
    assert (total(third, "a").success, total(third, "gone").success) == (13, 2)


def test_what_cannot_be_read_is_left_out_and_what_was_known_stays(files):
    first, second = SharedStats(files, 0), SharedStats(files, 1)
    second.write({"a": Totals(success=7)})
    assert total(first, "a").success == 7
    whole = files[1].read_bytes()
    for broken in (b"", b"\x01", whole[:-1], whole[:8], b"\xff" * len(whole), whole[:-1] + b"\x00"):
        files[1].write_bytes(broken)
        assert total(first, "a").success == 7
        assert total(SharedStats(files, 2), "a").success == 0
        assert total(SharedStats(files, 1), "a").success == 0
    files[1].unlink()
    assert total(first, "a").success == 7


def test_a_folder_that_is_gone_costs_the_sharing_and_not_the_counting(tmp_path):
    files = [tmp_path / "none" / f"gateway-{number}.totals" for number in (1, 2)]
    shared = SharedStats(files, 0)
    shared.write({"a": Totals(success=1)})
    assert total(shared, "a", 1).success == 1
    files[0].parent.mkdir()
    shared.write({"a": Totals(success=2)})
    assert total(SharedStats(files, 1), "a").success == 2


WRITER = """
import itertools, os, sys
from pathlib import Path
from workers.gateway.stats import Totals
from workers.gateway.shared_stats import SharedStats
shared = SharedStats([Path(path) for path in sys.argv[1:]], 0)
names = [f"application-{i}" for i in range(40)]
print("ready", flush=True)
# Until its standard input ends.
os.set_blocking(0, False)
for count in itertools.count():
    # Longer and shorter by turns.
    shared.write({name: Totals(success=count, rows=count, refused=count) for name in names[: 1 + count % 40]})
    if count >= 3000 and sys.stdin.buffer.read(1) == b"":
        print(count)
        break
"""


def test_a_reader_never_sees_half_of_what_another_process_writes(files):
    command = [sys.executable, "-c", textwrap.dedent(WRITER), *map(str, files[:2])]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "ready\n"
        reader, last, seen = SharedStats(files[:2], 1), 0, set()
        while writer.poll() is None:
            one = total(reader, "application-0")
            assert one.success == one.rows == one.refused >= last
            last = one.success
            seen.add(last)
            # However seldom this process has its turn.
            if last >= 3000 and len(seen) > 10 and not writer.stdin.closed:
                writer.stdin.close()
        written = int(writer.stdout.read())
    assert writer.returncode == 0
    assert total(SharedStats(files[:2], 1), "application-0").success == written
