"""Ends of profile jobs are kept until the control plane has them."""

from __future__ import annotations

import msgspec

from tools.waiting import eventually_async
from workers.node.cache import ModelCache
from workers.node.profiling import KEPT, ProfileJobs
from workers.protocol import control
from workers.protocol.specs import ApplicationSpec, VariantSpec


def jobs(folder, sent: list) -> ProfileJobs:
    return ProfileJobs(ModelCache(folder, "http://127.0.0.1:9", lambda: None, limit_bytes=10), {}, sent.append)


def order(job: int, attempt: int) -> control.ProfileOrder:
    return control.ProfileOrder(
        job=job,
        device="box/cpu0",
        variant=msgspec.convert(
            {"id": 3, "name": "a", "application": "digits", "digest": "0" * 64, "size_bytes": 1, "accuracy": None},
            VariantSpec,
        ),
        application=msgspec.convert(
            {"name": "digits", "slo_s": 0.3, "signature": {"inputs": [], "outputs": []}}, ApplicationSpec
        ),
        first=True,
        attempt=attempt,
    )


async def ended(sent: list, count: int) -> None:
    await eventually_async(lambda: len(sent) >= count)


async def test_a_failure_is_repeated_until_the_job_is_cancelled_or_ordered_again(tmp_path):
    sent: list[control.ProfileFailed] = []
    node = jobs(tmp_path, sent)
    node.order(order(7, attempt=1))
    assert node.under_way == (7,)
    await ended(sent, 1)
    assert "no such device" in sent[0].message and sent[0].attempt == 1 and node.under_way == (7,)
    node.repeat()
    node.order(order(7, attempt=1))
    assert sent == sent[:1] * 3, "nothing is measured again for the same attempt"
    node.order(order(7, attempt=2))
    await ended(sent, 4)
    assert sent[3].attempt == 2
    node.cancel(7)
    node.repeat()
    assert len(sent) == 4 and node.under_way == ()
    await node.close()


async def test_a_control_plane_of_older_code_gets_another_attempt(tmp_path):
    sent: list[control.ProfileFailed] = []
    node = jobs(tmp_path, sent)
    for count in (1, 2):
        node.order(order(7, attempt=0))
        assert len(sent) == count - 1, "it runs"
        await ended(sent, count)
    await node.close()


async def test_no_more_ends_are_kept_than_the_limit(tmp_path):
    sent: list[control.ProfileFailed] = []
    node = jobs(tmp_path, sent)
    for job in range(KEPT + 3):
        node.order(order(job, attempt=1))
        await ended(sent, job + 1)
    assert node.under_way == tuple(range(3, KEPT + 3))
    await node.close()
