"""When a member asks for its next certificate, and how it takes the answers.

Clocks are the test's.
"""

from __future__ import annotations

import pytest

from workers.protocol import control
from workers.transport.authority import ClusterAuthority
from workers.transport.identity import MemberIdentity
from workers.transport.renewal import ASK_EVERY_S, Renewal

from .worlds import DAY, NOW


class Member:
    """A node and its control plane, whose clock is right."""

    def __init__(self, folder):
        self.authority = ClusterAuthority.make()
        self.identity = MemberIdentity(folder / "a.pem", "node", "a")
        self.sent: list[control.FromMember] = []
        self.right = self.shown = NOW
        self.steady = 0.0
        self.renewal = Renewal(self.identity, self.sent.append, lambda: self.shown, lambda: self.steady)

    def issue(self, request: str) -> control.IssuedCertificate:
        issued = self.authority.issue(request, "node", "a", self.right)
        return control.IssuedCertificate(certificate=issued.certificate, authorities=self.authority.authorities)

    def join(self) -> None:
        joining = self.renewal.joining(control.JoinNode(name="a", devices=()))
        self.renewal.answered(self.issue(joining.certificate_request))

    def live(self, days: float, error=0 * DAY) -> int:
        """Let days pass, by a clock that is wrong by ``error``; how often it asked."""
        asked = 0
        for _ in range(round(days * 24 * 6)):
            self.steady += 600.0
            self.right += DAY / 24 / 6
            self.shown = self.right + error
            self.renewal.look()
            for message in self.sent:
                asked += 1
                self.renewal.answered(self.issue(message.certificate_request))
            self.sent.clear()
        return asked


@pytest.fixture
def node(tmp_path) -> Member:
    return Member(tmp_path)


def test_each_join_renews_and_then_every_ten_days(node):
    node.join()
    assert node.identity.issued
    assert node.live(9.9) == 0
    assert node.live(0.2) == 1
    assert node.live(29) == 2


@pytest.mark.parametrize("error", [-20_000 * DAY, 400 * DAY])
def test_a_clock_that_is_wrong_asks_each_hour_and_no_more(node, error):
    node.join()
    assert 23 <= node.live(1, error) <= 24
    # Once it is right again the certificate is a good one.
    assert node.live(9) <= 1


def test_a_control_plane_without_answers_is_asked_each_hour(node):
    node.join()
    node.steady += 11 * 86400
    node.shown += 11 * DAY
    for minute in range(181):
        node.renewal.look()
        node.steady += 60
        assert len(node.sent) == 1 + minute * 60 // int(ASK_EVERY_S)


def test_refusals_and_garbage_leave_the_certificate(node):
    node.join()
    before = node.identity.pem
    for answer in (
        control.IssuedCertificate(refused="not approved"),
        control.IssuedCertificate(),
        control.IssuedCertificate(certificate="garbage", authorities="garbage"),
    ):
        node.renewal.answered(answer)
    assert node.identity.pem == before
    node.renewal.ask()
    assert isinstance(node.sent[0], control.RenewCertificate)
