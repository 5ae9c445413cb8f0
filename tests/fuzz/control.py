"""Messages between processes and boxes.

Frames arrive in any pieces, and headers and JSON are of the documented types only.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tests.control.honest import GOOD
from tests.gateway.conftest import application, config, plan
from workers.protocol import control, frames, gateways
from workers.protocol.frame_connection import encode
from workers.protocol.frames import Frame, RequestShape, TensorHeader
from workers.protocol.framing import PREFIX, FrameError, Framing

LINKS = [frames.ToExecutor, frames.FromExecutor, gateways.ToCore, gateways.FromCore]
DECODERS = [msgspec.msgpack.Decoder(types) for types in LINKS]
TEXTS = [control.decode_from_node, control.decode_from_gateway, control.decode_to_node, control.decode_to_gateway]
#: what one input may make a reader allocate
MOST_BYTES = 1 << 24


class TooLarge(Exception):
    pass


def seeds() -> list[bytes]:
    header = TensorHeader("x", "FP32", (1, 4), 16)
    shape = msgspec.msgpack.encode((RequestShape(1, (header,)),))
    sent: list[tuple[Frame, list[bytes]]] = [
        (frames.Hello("gateway", "box"), []),
        (frames.MetricsRequest(), []),
        (gateways.Failed(7, "Invalid", "wrong", None), []),
        (gateways.WithdrawQueries((1, 2)), [shape]),
    ]
    framed = [b"".join(map(bytes, encode(message, body))) for message, body in sent]
    found = [bytes([0, place % 4, 5]) + frame for place, frame in enumerate(framed)]
    found.append(b"\x00\x02\x40" + framed[0] * 3 + PREFIX.pack(b"NR", 1, 0, 10, 1 << 30))
    texts = [
        *(control.encode(message) for messages in GOOD.values() for message in messages),
        control.encode(config(plan(1, {"d0": [("numbers", "big")]}, {"d0": "unix:/a"}), [application("numbers")])),
        control.encode(control.Joined(member=1, issued=control.IssuedCertificate(refused="not approved"))),
    ]
    return [*found, *(bytes([1, place % 4, 1]) + text.encode() for text in texts for place in range(4))]


def check(data: bytes) -> None:
    if len(data) < 3:
        return
    which, payload = data[1] % 4, data[3:]
    if data[0] % 2:
        text(TEXTS[which], payload)
        return
    whole = framed(payload, len(payload) or 1)
    assert framed(payload, data[2] + 1) == whole
    assert framed(payload, 1) == whole
    for one in whole:
        if isinstance(one, tuple):
            message(DECODERS[which], one[0])


def text(decode: Callable[[bytes], object], payload: bytes) -> None:
    try:
        found = decode(payload)
    except (msgspec.DecodeError, control.VersionMismatch, UnicodeDecodeError, RecursionError):
        return
    assert control.encode(found)
    if isinstance(found, control.FromMember):
        bounded(msgspec.to_builtins(found, builtin_types=(bytes,)))


def bounded(value: object) -> None:
    """Fail where a member's message holds what no reader should meet."""
    if isinstance(value, dict):
        assert len(value) <= 10_000
        for key, inner in value.items():
            bounded(key)
            bounded(inner)
    elif isinstance(value, list | tuple):
        assert len(value) <= 10_000
        for inner in value:
            bounded(inner)
    elif isinstance(value, str):
        assert len(value) <= 20_000
    elif isinstance(value, int | float):
        assert 0 <= value <= 2**53


def framed(data: bytes, size: int) -> list[tuple[bytes, bytes] | str]:
    """The frames, and why there are no more."""

    def memory(count: int) -> bytearray:
        if count > MOST_BYTES:
            raise TooLarge
        return bytearray(count)

    framing, found, offset = Framing(memory), [], 0
    try:
        while offset < len(data):
            space = framing.space()
            piece = data[offset : offset + min(size, len(space))]
            space[: len(piece)] = piece
            for header, body in framing.filled(len(piece)):
                found.append((bytes(header), bytes(body)))
            offset += len(piece)
    except FrameError:
        found.append("no frame")
    except TooLarge:
        found.append("too large")
    return found


def message(decoder: msgspec.msgpack.Decoder, header: bytes) -> None:
    try:
        found = decoder.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    assert decoder.decode(msgspec.msgpack.encode(found)) == found or "nan" in repr(found)
