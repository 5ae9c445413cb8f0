"""Bounds of what members may send: in the types of messages, and in number."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.members.intake import BURST, MAX_MESSAGE, PER_SECOND, IntakeLimits
from tests.control.honest import COUNTS, DEVICE_SECOND, DONE, GATEWAY_SECOND, GOOD, INFO, STATE
from workers.protocol import control
from workers.protocol.specs import ApplicationStats
from workers.token_bucket import TokenBucket

DECODE = {"node": control.decode_from_node, "gateway": control.decode_from_gateway}
MESSAGES = [(kind, message) for kind, messages in GOOD.items() for message in messages]


# --- bounds in the types ----------------------------------------------------------------------------------------------


def _places(value, path=()):
    """The paths of all numbers, texts, lists and objects in JSON."""
    yield path, value
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from _places(child, (*path, key))


def _replaced(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _replaced(value[path[0]], path[1:], new)
    return copy


def _bad(value) -> list:
    if isinstance(value, bool) or value is None:
        return ["banana"]
    if isinstance(value, int | float):
        return [-(10**12), -1e-3, 10**18, 10**400, 1e300, "many"]
    if isinstance(value, str):
        return ["x" * 20_001, 7]
    if isinstance(value, list):
        return [value * 10_001] if value else []
    return [{str(number): child for number in range(10_001)} for child in list(value.values())[:1]]


def _cases():
    for kind, message in MESSAGES:
        whole = json.loads(control.encode(message))
        for path, value in _places(whole):
            if path in ((), ("v",)) or (isinstance(value, dict) and path[-1] not in ("applications", "by_variant")):
                continue
            for bad in _bad(value):
                yield kind, type(message).__name__, path, _replaced(whole, path, bad)


@pytest.mark.parametrize(("kind", "message"), MESSAGES, ids=lambda value: getattr(type(value), "__name__", value))
def test_messages_of_honest_members_are_taken(kind, message):
    assert DECODE[kind](control.encode(message)) == message


def test_every_number_text_and_list_of_every_message_is_bounded_and_the_error_names_the_field():
    cases = list(_cases())
    assert len(cases) > 300
    for kind, name, path, whole in cases:
        try:
            found = DECODE[kind](json.dumps(whole))
        except msgspec.ValidationError as error:
            # Where a key itself is out of bounds, the place is that of its object.
            assert "$" in str(error) or path[-1] == "type", f"{name} {path}: {error}"
        else:
            raise AssertionError(f"{name} {path}: taken as {str(found)[:200]}")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("gateway", msgspec.structs.replace(GATEWAY_SECOND, at=1e6, plan_version=2**53)),
        ("gateway", control.GatewayStats(applications={f"a{n}": COUNTS for n in range(1000)}, ready=True)),
        (
            "gateway",
            control.GatewayStats(applications={"a": ApplicationStats(arrived_rows=10**9, p95_ms=1e8)}, ready=True),
        ),
        ("gateway", control.Burst(application="a", rate=1e8, plan_version=1)),
        ("node", control.JoinNode(name="n" * 63, devices=(msgspec.structs.replace(INFO, memory_bytes=2**44),) * 512)),
        ("node", control.NodeStats(devices=(msgspec.structs.replace(DEVICE_SECOND, memory_bytes=2**44),) * 512)),
        ("node", msgspec.structs.replace(DONE, accuracy=100.0, load_s=3600.0, validated_rows=10**10)),
        ("node", control.DeviceStates(devices=(msgspec.structs.replace(STATE, detail="x" * 16_000),) * 64)),
    ],
)
def test_large_values_of_honest_members_pass(kind, message):
    assert DECODE[kind](control.encode(message)) == message
    assert len(control.encode(message)) < MAX_MESSAGE


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.data())
def test_anything_in_any_place_is_taken_or_named(data):
    kind, message = data.draw(st.sampled_from(MESSAGES))
    whole = json.loads(control.encode(message))
    paths = [path for path, _ in _places(whole) if path]
    for path in data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=2)):
        try:
            whole = _replaced(whole, path, data.draw(_json))
        except (KeyError, IndexError, TypeError, ValueError):
            continue  # the first replacement took the second one's place away
    try:
        found = DECODE[kind](json.dumps(whole))
    except (msgspec.DecodeError, control.VersionMismatch):
        return
    assert DECODE[kind](control.encode(found)) == found


# --- limits -----------------------------------------------------------------------------------------------------------


def test_a_link_may_send_so_much_at_once_and_then_so_much_a_second():
    intake = IntakeLimits()
    small = [intake.pause(100, 0.0) for _ in range(int(BURST) - 20)]
    assert not any(small)
    late = [intake.pause(100, 0.0) for _ in range(1000)]
    assert late[-1] > 1.0 and late == sorted(late)
    assert IntakeLimits().pause(MAX_MESSAGE, 0.0) == 0.0
    large = IntakeLimits()
    waited = sum(pause := large.pause(MAX_MESSAGE, 0.0) for _ in range(20)) and pause
    assert waited * PER_SECOND * 16 * 1024 > 10 * MAX_MESSAGE


def test_a_node_that_was_cut_off_for_a_minute_may_send_all_it_has():
    intake = IntakeLimits()
    assert all(intake.takes_statistics(0.0) for _ in range(120))
    assert all(intake.takes_statistics(1.0 + second) for second in range(600) for _ in range(2))
    assert intake.surplus == 0


@given(st.lists(st.floats(0, 10), min_size=1, max_size=50))
def test_a_bucket_never_gives_more_than_its_rate(gaps):
    bucket, now, given_out = TokenBucket(3.0, 0.5), 0.0, 0
    for gap in gaps:
        now += gap
        given_out += bucket.takes(now)
    assert given_out <= 3.0 + 0.5 * now + 1e-6
