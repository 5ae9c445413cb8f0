"""Totals that several fronts share by files: nothing is lost or read by halves."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.running import ROOT
from workers.gateway.options import LocalGateways
from workers.gateway.shared_stats import SharedStats, added
from workers.protocol.gateways import ApplicationTotals


@pytest.fixture
def files(tmp_path) -> list[Path]:
    return [tmp_path / f"gateway-{number}.totals" for number in (1, 2, 3)]


class Front:
    def __init__(self, files: list[Path], own: int):
        self.totals: dict[str, ApplicationTotals] = {}
        self.shared = SharedStats(LocalGateways(Path(), tuple(files), own), self.totals)

    def write(self, **totals: ApplicationTotals) -> None:
        self.totals.update(totals)
        self.shared.write()

    def total(self, name: str) -> ApplicationTotals:
        own = self.totals.get(name, ApplicationTotals())
        return added([own, *(one[name] for one in self.shared.elsewhere() if name in one)])


def test_each_front_knows_the_sum(files):
    fronts = [Front(files, own) for own in range(3)]
    for own, front in enumerate(fronts):
        totals = ApplicationTotals(in_time=10**own, success_s=0.5, last_success_unix=100.0 + own)
        front.write(a=totals, b=ApplicationTotals(failed=1))
    for front in fronts:
        found = front.total("a")
        assert (found.in_time, found.success_s, found.last_success_unix) == (111, 1.5, 102.0)
        assert front.total("b").failed == 3


def test_a_process_that_died_is_continued(files):
    first, second = Front(files, 0), Front(files, 1)
    first.write(a=ApplicationTotals(in_time=5))
    second.write(a=ApplicationTotals(in_time=7), gone=ApplicationTotals(in_time=2))
    successor = Front(files, 1)
    assert successor.total("a").in_time == 12
    successor.totals["a"].in_time += 1
    successor.write()
    assert first.total("a").in_time == successor.total("a").in_time == 13
    third = Front(files, 1)
    assert (third.total("a").in_time, third.total("gone").in_time) == (13, 2)


def test_a_file_that_cannot_be_read_is_left_out_and_what_was_known_stays(files):
    first, second = Front(files, 0), Front(files, 1)
    second.write(a=ApplicationTotals(in_time=7))
    assert first.total("a").in_time == 7
    whole = files[1].read_bytes()
    for broken in (b"", b"\x01", whole[:-1], whole[:8], b"\xff" * len(whole)):
        files[1].write_bytes(broken)
        assert first.total("a").in_time == 7
        assert Front(files, 2).total("a").in_time == 0
        assert Front(files, 1).total("a").in_time == 0
    files[1].unlink()
    assert first.total("a").in_time == 7


def test_without_its_folder_only_sharing_stops(tmp_path):
    files = [tmp_path / "none" / f"gateway-{number}.totals" for number in (1, 2)]
    front = Front(files, 0)
    front.write(a=ApplicationTotals(in_time=1))
    assert front.total("a").in_time == 1
    files[0].parent.mkdir()
    front.write(a=ApplicationTotals(in_time=2))
    assert Front(files, 1).total("a").in_time == 2


WRITER = """
import itertools, os, sys
from pathlib import Path
from workers.protocol.gateways import ApplicationTotals
from workers.gateway.options import LocalGateways
from workers.gateway.shared_stats import SharedStats
totals = {}
shared = SharedStats(LocalGateways(Path(), tuple(map(Path, sys.argv[1:])), 0), totals)
names = [f"application-{i}" for i in range(40)]
print("ready", flush=True)
# Until its standard input ends.
os.set_blocking(0, False)
for count in itertools.count():
    # Longer and shorter by turns.
    totals.clear()
    for name in names[: 1 + count % 40]:
        totals[name] = ApplicationTotals(in_time=count, rows=count, failed=count)
    shared.write()
    if count >= 3000 and sys.stdin.buffer.read(1) == b"":
        print(count)
        break
"""


def test_a_reader_never_sees_half_of_what_another_process_writes(files):
    command = [sys.executable, "-c", textwrap.dedent(WRITER), *map(str, files[:2])]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "ready\n"
        reader, last, seen = Front(files[:2], 1), 0, set()
        while writer.poll() is None:
            one = reader.total("application-0")
            assert one.in_time == one.rows == one.failed >= last
            last = one.in_time
            seen.add(last)
            # However seldom this process has its turn.
            if last >= 3000 and len(seen) > 10 and not writer.stdin.closed:
                writer.stdin.close()
        written = int(writer.stdout.read())
    assert writer.returncode == 0
    assert Front(files[:2], 1).total("application-0").in_time == written
