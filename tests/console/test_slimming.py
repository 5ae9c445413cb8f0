"""Seconds as browsers get them have all that pages read, and nothing else."""

import msgspec

from console.slimming import slim
from workers.protocol.specs import ApplicationStats, DeviceStats, VariantStats

IDLE = ApplicationStats()
BUSY = ApplicationStats(arrived=3, in_time=2, late=1, normalized_sum=180.123456, p95_ms=12.3456, by_variant={"v": 3})


def test_zeros_are_left_out_and_digits_rounded():
    counts = {"busy": msgspec.to_builtins(BUSY), "idle": msgspec.to_builtins(IDLE)}
    data = slim({"event": "gateway_second", "data": {"t": 5, "gateway": "g", "applications": counts}})["data"]
    assert (data["t"], data["gateway"], data["applications"]["idle"]) == (5, "g", {})
    assert data["applications"]["busy"] == {
        "arrived": 3,
        "in_time": 2,
        "late": 1,
        "normalized_sum": 180.123,
        "p95_ms": 12.346,
        "by_variant": {"v": 3},
    }


def test_devices_keep_their_figures_and_the_variants_that_ran():
    variants = (VariantStats(1, "tiny", 4, 2, 0.1, 1.2345), VariantStats(2, "tiny", 0, 0, 0.0))
    second = DeviceStats(
        device="box/cpu0",
        busy=0.12345,
        profiling=0.0,
        queued_rows=0,
        memory_bytes=7,
        plan_version=3,
        variants=variants,
        watts=3.21,
    )
    event = {"event": "node_second", "data": {"t": 5, "node": "box", "devices": [msgspec.to_builtins(second)]}}
    (found,) = slim(event)["data"]["devices"]
    assert found.pop("variants") == [{"variant": 1, "rows": 4, "batches": 2, "drift": 1.23}]
    assert found == {"device": "box/cpu0", "busy": 0.123, "memory_bytes": 7, "plan_version": 3, "watts": 3.2}
    other = {"event": "plan", "data": {"version": 1}}
    assert slim(other) is other


def test_fields_that_pages_add_up_are_those_of_the_protocol():
    from console import slimming

    assert set(slimming.COUNTS) <= set(ApplicationStats.__struct_fields__)
    assert set(slimming.DEVICE) <= set(DeviceStats.__struct_fields__)
