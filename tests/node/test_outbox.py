"""Messages that a member keeps while the control plane is away."""

from __future__ import annotations

from workers.outbox import Outbox
from workers.protocol import control
from workers.protocol.specs import DeviceState, DeviceStats


def _stats(busy: float = 0.0) -> control.NodeStats:
    return control.NodeStats(
        devices=(DeviceStats(device="d", busy=busy, profiling=0, queued_rows=0, memory_bytes=0, plan_version=0),)
    )


def _states(state: str) -> control.DeviceStates:
    return control.DeviceStates(devices=(DeviceState(device="d", state=state),))


def _drain(outbox: Outbox, now: float) -> list[control.FromMember]:
    messages = []
    while (message := outbox.pop(now)) is not None:
        messages.append(message)
    return messages


def test_statistics_of_the_last_minute_leave_oldest_first_with_their_age():
    outbox = Outbox(stats_s=60)
    for second in range(100):
        outbox.put(_stats(busy=second), now=float(second), up=False)
    sent = _drain(outbox, now=100.0)
    assert [message.devices[0].busy for message in sent] == list(range(40, 100))
    assert [message.at for message in sent] == [float(age) for age in range(60, 0, -1)]
    assert outbox.dropped["stats"] == 40


def test_an_age_given_by_the_sender_adds_to_the_wait():
    outbox = Outbox()
    outbox.put(control.NodeStats(devices=(), at=2.0), now=10.0, up=True)
    assert outbox.pop(13.0).at == 5.0


def test_only_the_newest_state_is_kept_and_it_goes_first():
    outbox = Outbox()
    outbox.put(_stats(), 0.0, False)
    outbox.put(control.ProfileFailed(job=1, message="x"), 0.0, False)
    outbox.put(_states("starting"), 0.0, False)
    outbox.put(_states("up"), 1.0, False)
    assert _drain(outbox, 2.0)[:2] == [_states("up"), control.ProfileFailed(job=1, message="x")]


def test_the_end_of_a_job_replaces_its_progress():
    outbox = Outbox()
    outbox.put(control.ProfileProgress(job=1, phase="measuring", done=0.1), 0.0, False)
    outbox.put(control.ProfileProgress(job=2, phase="measuring", done=0.2), 0.0, False)
    outbox.put(control.ProfileProgress(job=2, phase="measuring", done=0.3), 0.0, False)
    outbox.put(control.ProfileFailed(job=1, message="x"), 0.0, False)
    assert _drain(outbox, 1.0) == [
        control.ProfileProgress(job=2, phase="measuring", done=0.3),
        control.ProfileFailed(job=1, message="x"),
    ]


def test_a_moment_is_not_kept_while_the_link_is_down():
    outbox = Outbox()
    burst = control.Burst(application="a", rate=1.0, plan_version=1)
    outbox.put(burst, 0.0, up=False)
    assert outbox.pop(0.0) is None
    outbox.put(burst, 0.0, up=True)
    outbox.link_lost()
    assert outbox.pop(0.0) is None
    outbox.put(burst, 0.0, up=True)
    assert outbox.pop(0.0) == burst
    assert outbox.dropped["moment"] == 2


def test_too_many_events_cost_the_oldest_one():
    outbox = Outbox(event_limit=3)
    for job in range(5):
        outbox.put(control.ProfileFailed(job=job, message="x"), 0.0, False)
    assert [message.job for message in _drain(outbox, 0.0)] == [2, 3, 4]
    assert outbox.dropped["event"] == 2


def test_what_could_not_be_sent_goes_first_again_unless_it_is_sent_anew():
    outbox = Outbox()
    outbox.put(_stats(busy=1), 0.0, True)
    outbox.put(_stats(busy=2), 1.0, True)
    outbox.put_back(outbox.pop(1.0), 2.0)
    assert [(m.devices[0].busy, m.at) for m in _drain(outbox, 3.0)] == [(1, 2.0), (2, 2.0)]
    progress = control.ProfileProgress(job=1, phase="measuring", done=0.1)
    end = control.ProfileFailed(job=1, message="x")
    for message in (_states("starting"), progress, end):
        outbox.put_back(message, 0.0)
    assert _drain(outbox, 0.0) == [end]
