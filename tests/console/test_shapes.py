"""Example queries, numbers and the outbox, by plain values."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

import pytest

from console.outbox import SNAPSHOT, BrowserOutbox
from console.templatetags.console_format import bytes_short, gap, ms, rate, shape, share
from registry.examples import curl


def body_of(command: str) -> dict:
    words = shlex.split(command.replace("\\\n", " "))
    if words[0] == "curl":
        return json.loads(words[words.index("-d") + 1])
    script = words[words.index("-c") + 1]
    return json.loads(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("width", [4, 784])
def test_the_example_sends_one_row_that_fits_the_signature(width):
    signature = {
        "inputs": [
            {"name": "x y'z", "datatype": "FP32", "shape": [-1, width]},
            {"name": "mask", "datatype": "BOOL", "shape": [-1, -1]},
            {"name": "n", "datatype": "INT64", "shape": [-1, 2]},
        ],
        "outputs": [],
    }
    command = curl("digits", signature, "http://127.0.0.1:8000")
    assert "http://127.0.0.1:8000/v2/models/digits/infer" in command
    first, mask, numbers = body_of(command)["inputs"]
    assert first == {"name": "x y'z", "datatype": "FP32", "shape": [1, width], "data": [0.0] * width}
    assert mask == {"name": "mask", "datatype": "BOOL", "shape": [1, 1], "data": [False]}
    assert numbers["data"] == [0, 0]


def test_numbers_read_well():
    assert [rate(None), rate(0.0), rate(99.95), rate(12345.6)] == ["–", "0.0", "100.0", "12,346"]
    # Small figures are not shown as zero.
    assert [rate(0.001), rate(0.04), rate(0.1)] == ["< 0.01", "0.04", "0.1"]
    assert [share(0.0), share(0.004), share(0.014)] == ["0 %", "< 1 %", "1 %"]
    assert [bytes_short(size) for size in (0, 900, 1536, 5 << 30)] == ["–", "900 B", "1.5 KiB", "5.0 GiB"]
    assert [ms(0.123), ms(123.4)] == ["0.12 ms", "123 ms"]
    assert [gap(0.0), gap(0.0123)] == ["0 %", "1.23 %"]
    assert shape([-1, 3, 224]) == "[*, 3, 224]"


def test_an_outbox_keeps_order():
    box = BrowserOutbox(limit=3)
    for n in range(3):
        box.put({"event": n})
    assert [box.take()["event"] for _ in range(3)] == [0, 1, 2]
    assert box.take() is None and not box


def test_an_outbox_that_overflows_lets_everything_go_and_asks_for_the_whole_state():
    box = BrowserOutbox(limit=3)
    for n in range(4):
        box.put({"event": n})
    assert box.dropped == 4
    box.put({"event": "new"})
    assert [box.take(), box.take(), box.take()] == [SNAPSHOT, {"event": "new"}, None]
    for event in ("pong", "old", "pong"):
        box.put({"event": event})
    box.restart()
    assert [box.take(), box.take(), box.take()] == [{"event": "pong"}, SNAPSHOT, None]
