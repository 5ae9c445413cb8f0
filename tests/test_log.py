"""Log lines are bounded in length and rate, and the appliance's file in size."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys

import pytest

from appliance.local import reserve
from appliance.local.logfile import LogFile
from workers import log
from workers.log import CLIENT_CHARS, LimitedRate

#: logs as a web process does, by the arguments: how often, and what
WEB = """
import logging, sys
from pathlib import Path
from workers import log
log.configure("web", path=Path(sys.argv[1]))
"""


def lines(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def written(path, code: str) -> list[dict]:
    subprocess.run([sys.executable, "-c", WEB + code, str(path)], check=True, timeout=120)
    return lines(path)


def refused(status: int, name: str = "django.request") -> logging.LogRecord:
    record = logging.LogRecord(name, logging.WARNING, "", 0, "Unauthorized: %s", ("/v1",), None)
    record.status_code = status
    return record


def test_a_day_of_requests_without_a_key_is_a_few_lines():
    """1,000 a second for 24 hours; the first of each second is simulated, as the number makes no difference."""
    now = 0.0
    rate = LimitedRate(lambda: now)
    passed, counted = 0, 0
    for _ in range(24 * 3600):
        now += 1.0
        record = refused(401)
        if rate.filter(record):
            passed += 1
            counted += 1 + getattr(record, "left_out", 0)
    assert passed == pytest.approx(24 * 60 + 5, abs=2)
    assert counted > 24 * 3600 - 70, "those left out are counted"
    # A line of such a request has less than 400 bytes: see the next test.
    assert passed * 400 < 1e6


def test_a_path_is_cut_and_a_line_is_one_line(tmp_path):
    code = """
path = "/" + "x" * 65_000 + "\\n{}"
logging.getLogger("django.request").warning("Unauthorized: %s", path, extra={"status_code": 401})
"""
    (line,) = written(tmp_path / "log", code)
    assert line["event"].startswith("Unauthorized: /xxx") and "65004 characters" in line["event"]
    assert len(json.dumps(line)) < CLIENT_CHARS + 200


def test_long_values_and_tracebacks_are_cut(tmp_path):
    code = """
logger = log.get("web")
logger.info("uploaded", name="n" * 100_000, shapes=list(range(100_000)), small=[1, 2], path="/" + "p" * 5000)
def deep(n):
    if n: deep(n - 1)
    else: raise ValueError("v" * 100_000)
try:
    deep(500)
except ValueError:
    logger.exception("failed")
"""
    uploaded, failed = written(tmp_path / "log", code)
    assert len(uploaded["name"]) < 2_100 and len(uploaded["shapes"]) < 2_100 and uploaded["small"] == [1, 2]
    assert len(uploaded["path"]) < CLIENT_CHARS + 40
    assert len(failed["exception"]) < 8_100 and failed["exception"].startswith("Traceback")


def test_a_kind_of_line_that_repeats_is_left_out_and_counted(tmp_path):
    code = """
logger = log.get("web")
for number in range(5_000): logger.warning("member_refused", number=number)
logger.info("other")
import time; time.sleep(1.1)
logger.warning("member_refused", number=-1)
"""
    found = written(tmp_path / "log", code)
    # A slow machine may let a line through for each second that it takes.
    assert 102 <= len(found) < 200
    assert {line["event"] for line in found} == {"member_refused", "other"}
    repeated = [line for line in found if line["event"] == "member_refused"]
    assert sum(1 + line.get("left_out", 0) for line in repeated) == 5_001


def test_kinds_without_number_do_not_get_around_the_limit():
    now = 0.0
    rate = LimitedRate(lambda: now)
    passed = 0
    for number in range(100_000):
        now += 0.001
        record = logging.LogRecord("any", logging.INFO, "", 0, f"one of its own: {number}", (), None)
        passed += rate.filter(record)
    assert passed <= 2_000 + 100 / 0.05
    assert len(rate._buckets) <= log._KINDS


def test_processes_go_on_in_the_file_that_was_rotated(tmp_path):
    path = tmp_path / "nereus.log"
    file = LogFile(path, limit=2_000, kept=2)
    with path.open("ab", buffering=0) as writer, path.open("ab", buffering=0) as other:
        number = 0
        while file.rotate() is False or number < 400:
            for one in (writer, other):
                one.write(b"line %06d\n" % number)
                number += 1
        writer.write(b"after\n")
        other.write(b"last\n")
    assert path.read_bytes() == b"after\nlast\n"
    earlier = (tmp_path / "nereus.log.1").read_bytes()
    assert earlier.endswith(b"line %06d\n" % (number - 1))
    whole = (tmp_path / "nereus.log.2").read_bytes() + earlier
    kept = [int(line.split()[1]) for line in whole.splitlines()]
    assert kept == list(range(kept[0], number)), "no line is lost or twice"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["nereus.log", "nereus.log.1", "nereus.log.2"]
    assert os.stat(tmp_path / "nereus.log.1").st_mode & 0o077 == 0


def test_a_full_disk_is_left_room_to_start(tmp_path):
    reserve.keep(tmp_path)
    assert (tmp_path / "reserve").stat().st_blocks * 512 >= reserve.BYTES
    for name in ("nereus.log", "nereus.log.1", "nereus.log.2"):
        (tmp_path / name).touch()
    assert reserve.make_room(tmp_path, wanted=1) == [], "there is room"
    # More than any disk has.
    assert reserve.make_room(tmp_path, wanted=2**62) == ["reserve", "nereus.log.2", "nereus.log.1"]
    assert [one.name for one in tmp_path.iterdir()] == ["nereus.log"]
