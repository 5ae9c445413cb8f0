"""The same frames come out, whatever the pieces in which a stream arrives."""

from __future__ import annotations

import random

import numpy as np
import pytest

from workers.protocol import frames
from workers.protocol.frame_connection import FrameConnection
from workers.protocol.framing import MAX_BODY, MAX_HEADER, PREFIX, VERSION, FrameError, Framing


def _frame(header: bytes, body: bytes) -> bytes:
    return PREFIX.pack(b"NR", VERSION, 0, len(header), len(body)) + header + body


def _feed(framing: Framing, data: bytes, most: int) -> list[tuple[bytes, memoryview]]:
    found, left = [], memoryview(data)
    while left:
        space = framing.space()
        assert len(space) > 0
        count = min(len(space), len(left), most)
        space[:count] = left[:count]
        found += [(bytes(header), body) for header, body in framing.filled(count)]
        left = left[count:]
    return found


@pytest.mark.parametrize("most", [1, 7, 4096, 10**9])
def test_frames_come_out_whole_and_in_order_whatever_the_pieces(most):
    random_ = random.Random(1)
    sizes = [(0, 0), (5, 0), (0, 9), (20, 300), (16_000, 700), (3, 20_000), (40, 200_000), (300_000, 10), (9, 4)]
    sent = [(random_.randbytes(header), random_.randbytes(body)) for header, body in sizes]
    sent = sent if most > 1 else sent[:5]
    found = _feed(Framing(), b"".join(_frame(*one) for one in sent), most)
    # Only now, so that a body which was overwritten by what came later would show.
    assert [(header, bytes(body)) for header, body in found] == sent


def test_many_small_frames_of_one_read_are_kept_apart():
    sent = [(b"h%d" % i, b"b" * (i % 50)) for i in range(5_000)]
    found = _feed(Framing(), b"".join(_frame(*one) for one in sent), 10**9)
    assert [(header, bytes(body)) for header, body in found] == sent


@pytest.mark.parametrize("size", [600_000, 20_000_000])
@pytest.mark.parametrize("header", [1, 63, 64, 1000])
def test_a_large_body_stands_where_tensors_can_be_used_and_cannot_be_changed(header, size):
    sent = b"h" * header, bytes(range(250)) * (size // 250)
    ((found, body),) = _feed(Framing(), _frame(*sent), 65_536)
    assert (found, bytes(body)) == sent
    assert np.frombuffer(body, np.float64).flags.aligned
    assert body.readonly


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"XX" + _frame(b"a", b"b")[2:], "not a frame of version"),
        (_frame(b"a", b"b")[:2] + b"\x09" + _frame(b"a", b"b")[3:], "version 9"),
        (PREFIX.pack(b"NR", VERSION, 0, MAX_HEADER + 1, 0), "frame too large: header"),
        (PREFIX.pack(b"NR", VERSION, 0, 0, MAX_BODY + 1), "frame too large: header 0, body"),
    ],
)
def test_what_is_no_frame_is_refused(data, complaint):
    with pytest.raises(FrameError, match=complaint):
        _feed(Framing(), data, 10**9)


def test_a_size_that_is_only_claimed_takes_no_memory():
    def resident_bytes() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    framing, before = Framing(), resident_bytes()
    assert _feed(framing, PREFIX.pack(b"NR", VERSION, 0, 10, MAX_BODY // 2), 10**9) == []
    assert resident_bytes() - before < 64 * 1024 * 1024


class _Transport:
    def __init__(self):
        self.writes: list[bytes] = []
        self.closed = False

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> None:
        return None

    def writelines(self, parts) -> None:
        self.writes.append(b"".join(parts))


def test_frames_sent_together_are_one_write_and_arrive_as_they_would_singly():
    messages = [(frames.Withdraw(1), ()), (frames.Withdraw(2), [b"abc", memoryview(b"de")]), (frames.Moved(3), [b""])]
    received: list[tuple[frames.Frame, bytes]] = []
    receiver = FrameConnection(
        frames.ToExecutor, lambda _, message, body: received.append((message, bytes(body))), lambda *_: None
    )
    sender = FrameConnection(frames.FromExecutor, lambda *_: None, lambda *_: None)
    transport = _Transport()
    sender.connection_made(transport)
    assert sender.send_all(messages)
    assert len(transport.writes) == 1
    buffer = receiver.get_buffer(-1)
    buffer[: len(transport.writes[0])] = transport.writes[0]
    receiver.buffer_updated(len(transport.writes[0]))
    assert received == [(message, b"".join(body)) for message, body in messages]
    transport.closed = True
    assert not sender.send_all(messages)
    assert len(transport.writes) == 1
