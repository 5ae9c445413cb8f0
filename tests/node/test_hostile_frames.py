"""Reports of executors are bounded."""

from __future__ import annotations

import math

import msgspec
import pytest

from workers.protocol import frames
from workers.protocol.control import Drift, FaultReport, Overload, ProfileDone, ProfileProgress
from workers.protocol.specs import DeviceState, DeviceStats, ProfilePoint, VariantStats

RESULTS = frames.Results(
    1, (7,), "v", 90.0, 100.0, 0.001, 0.002, 1, 0.003, (frames.ResultTensor("y", "FP32", (1, 3), 12),)
)
STATE = frames.ExecutorState("box/cpu0", 5, (frames.WarmVariant(1, "v", "app", 90.0, True),), False, {"app": 3}, 0.1)
VARIANT = VariantStats(variant=1, application="app", rows=3, batches=1, busy_s=0.1, drift=1.0)
STATS = DeviceStats("box/cpu0", 0.5, 0.1, 3, 10**9, 5, (VARIANT,))
POINT = ProfilePoint(1, 0.001, 0.002, 0.001, 20)
DONE = ProfileDone(job=3, load_s=0.1, memory_bytes=10**6, points=(POINT,), accuracy=90.0, validated_rows=10)
DEVICE_STATE = DeviceState("box/cpu0", "up", 5, (1,), "")
OVERLOAD = Overload(device="box/cpu0", application="app", arrived=10, refused=4)
DRIFT = Drift(device="box/cpu0", variant=1, ratio=1.5)
PROGRESS = ProfileProgress(job=3, phase="measuring", done=0.5, points=(POINT,))
FAULT = FaultReport(device="box/cpu0", variant=1, cause="crashed", detail="why")

_decoder = msgspec.msgpack.Decoder(frames.FromExecutor)


def decoded(frame: frames.Frame) -> frames.Frame:
    return _decoder.decode(msgspec.msgpack.encode(frame))


def wrap(value) -> frames.Frame:
    match value:
        case frames.Frame():
            return value
        case VariantStats():
            return wrap(msgspec.structs.replace(STATS, variants=(value,)))
        case DeviceStats():
            return frames.StatsReport(value)
        case DeviceState():
            return frames.StateReport(value)
        case ProfilePoint():
            return wrap(msgspec.structs.replace(DONE, points=(value,)))
        case frames.ResultTensor():
            return msgspec.structs.replace(RESULTS, outputs=(value,))
    return frames.Relay(value)


GOOD = (RESULTS, STATE, VARIANT, STATS, POINT, DONE, DEVICE_STATE, OVERLOAD, DRIFT, PROGRESS, FAULT, RESULTS.outputs[0])


@pytest.mark.parametrize("value", GOOD, ids=lambda value: type(value).__name__)
def test_what_executors_send_is_accepted(value):
    assert decoded(wrap(value)) == wrap(value)


def _cases():
    for value in GOOD:
        for field in msgspec.structs.fields(value):
            now = getattr(value, field.name)
            if isinstance(now, bool) or (isinstance(now, int) and field.name in ("number", "v")):
                continue  # any number will do: a gateway looks its own up
            if isinstance(now, float):
                bad = (math.nan, math.inf, -math.inf, -1e300, 1e300)
            elif isinstance(now, int):
                bad = (-1, 2**63)
            elif isinstance(now, str) and field.name not in ("name", "datatype", "variant"):
                bad = ("x" * 20_001,)
            else:
                continue
            for one in bad:
                yield pytest.param(value, field.name, one, id=f"{type(value).__name__}.{field.name}={str(one)[:8]}")


@pytest.mark.parametrize(("value", "field", "bad"), list(_cases()))
def test_numbers_that_cannot_be_and_endless_texts_are_rejected(value, field, bad):
    with pytest.raises(msgspec.ValidationError, match=r"Expected|Invalid"):
        decoded(wrap(msgspec.structs.replace(value, **{field: bad})))


def test_a_state_that_does_not_exist_is_rejected():
    with pytest.raises(msgspec.ValidationError, match="Invalid enum value 'banana'"):
        decoded(wrap(msgspec.structs.replace(DEVICE_STATE, state="banana")))


@pytest.mark.parametrize(
    "frame",
    [
        msgspec.structs.replace(STATE, queued={"app": -1}),
        msgspec.structs.replace(STATE, warm=STATE.warm * 10_001),
        msgspec.structs.replace(RESULTS, rows=(-1,)),
        wrap(msgspec.structs.replace(RESULTS.outputs[0], shape=(-1, 3))),
        wrap(msgspec.structs.replace(STATS, variants=(VARIANT,) * 10_001)),
    ],
)
def test_what_stands_in_lists_is_bounded_too(frame):
    with pytest.raises(msgspec.ValidationError):
        decoded(frame)
