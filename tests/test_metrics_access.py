"""Clients may read operating figures by their address and a name of the box, and not through a proxy."""

from __future__ import annotations

import pytest

from workers.metrics_access import MetricsAccess
from workers.settings import Settings, SettingsError


def access(**given: str) -> MetricsAccess:
    return MetricsAccess.of(Settings.from_environ({f"NEREUS_{name}": value for name, value in given.items()}))


@pytest.mark.parametrize(
    ("peer", "host", "permitted"),
    [
        ("127.0.0.1", b"127.0.0.1:8000", True),
        ("127.0.0.1", b"localhost:8000", True),
        ("127.8.9.1", b"LOCALHOST.", True),
        ("::1", b"[::1]:8000", True),
        ("::ffff:127.0.0.1", b"localhost", True),
        ("127.0.0.1", None, True),
        ("127.0.0.1", b"box.example.com:443", True),
        ("127.0.0.1", b"a.b.example.org", True),
        ("127.0.0.1", b"example.org", False),
        ("127.0.0.1", b"evil.example:8000", False),
        ("127.0.0.1", b"localhost.evil.example", False),
        ("127.0.0.1", b"", False),
        ("127.0.0.1", b"[", False),
        ("127.0.0.1", b"\xff", False),
        ("192.0.2.1", b"localhost", False),
        ("fe80::1%eth0", b"localhost", False),
        ("", b"localhost", False),
    ],
)
def test_by_default_this_box_under_its_own_names(peer, host, permitted):
    ours = access(PUBLIC_URL="https://box.example.com", ALLOWED_HOSTS=".example.org")
    assert ours.permit(peer, {} if host is None else {b"host": host}) is permitted


@pytest.mark.parametrize("header", [b"x-forwarded-for", b"forwarded", b"via", b"x-real-ip"])
def test_requests_that_a_proxy_passed_on_are_strangers(header):
    assert not access().permit("127.0.0.1", {b"host": b"localhost", header: b"x"})


def test_a_monitoring_system_is_listed_by_its_address():
    ours = access(METRICS_FROM="10.1.0.0/16, fd00::7")
    for peer, permitted in (("10.1.2.3", True), ("fd00::7", True), ("10.2.0.1", False), ("127.0.0.1", False)):
        assert ours.permit(peer, {b"host": b"10.1.0.1:8000"}) is permitted
    with pytest.raises(SettingsError, match=r"NEREUS_METRICS_FROM='box': must be IP addresses or networks"):
        access(METRICS_FROM="box")
