"""A real gateway process over TLS."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess

import httpx2
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from cryptography import x509

from tests.authority import Authority
from tests.scanning import objections

from .conftest import AUTH, KEY, one_device, wait_for

pytestmark = pytest.mark.wide

X = np.arange(100_000, dtype=np.float32).reshape(-1, 4)
QUERY = '{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}'


@pytest.fixture
def encrypted(devices, gateways):
    def start(**settings: str):
        _, made = one_device(devices)
        gateway = gateways(made, constants={"workers.trust.server.LOOK_EVERY_S": 0.5}, NEREUS_TLS="on", **settings)
        gateway.wait_ready()
        return gateway

    return start


def grpc_port(gateway) -> int:
    return int(gateway.grpc.rpartition(":")[2])


def serial(port: int, authority) -> int:
    context = ssl.create_default_context(cafile=authority)
    with (
        socket.create_connection(("127.0.0.1", port), 60) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as tls,
    ):
        return x509.load_der_x509_certificate(tls.getpeercert(True)).serial_number


def test_clients_infer_with_the_appliances_own_authority(encrypted):
    gateway = encrypted(NEREUS_QUEUE_ROWS="100000")
    authority = str(gateway.home / "tls" / "authority.pem")
    for rows in (1, len(X)):
        tensor = tritonclient.grpc.InferInput("x", [rows, 4], "FP32").set_data_from_numpy(X[:rows])
        with tritonclient.grpc.InferenceServerClient(gateway.grpc, ssl=True, root_certificates=authority) as client:
            got = client.infer("numbers", [tensor], headers={"authorization": f"Bearer {KEY}"})
            np.testing.assert_array_equal(got.as_numpy("y"), X[:rows] * 2)
        tensor = tritonclient.http.InferInput("x", [rows, 4], "FP32").set_data_from_numpy(X[:rows])
        context = lambda: ssl.create_default_context(cafile=authority)  # noqa: E731
        with tritonclient.http.InferenceServerClient(
            f"127.0.0.1:{gateway.port}", ssl=True, ssl_context_factory=context
        ) as client:
            np.testing.assert_array_equal(
                client.infer("numbers", [tensor], headers=dict(AUTH)).as_numpy("y"), X[:rows] * 2
            )
    if shutil.which("curl"):
        command = ["curl", "-sS", "--cacert", authority, f"{gateway.url}/v2/models/numbers/infer", "-d", QUERY]
        done = subprocess.run([*command, "-H", f"Authorization: Bearer {KEY}"], capture_output=True, text=True)
        assert '"data":[2.0,4.0,6.0,8.0]' in done.stdout.replace(" ", ""), done.stderr
    # Strangers to the authority do not connect, nor do clients with an old version; those without TLS are told.
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{gateway.url}/v2/health/live", verify=ssl.create_default_context(), timeout=60)
    plain = httpx2.get(f"http://127.0.0.1:{gateway.port}/v2/health/live", timeout=60)
    assert plain.status_code == 400 and "https://" in plain.text
    old = ssl.create_default_context(cafile=authority)
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{gateway.url}/v2/health/live", verify=old, timeout=60)


def test_a_replaced_certificate_is_used_and_connections_go_on(encrypted, tmp_path):
    authority = Authority(tmp_path)
    first, second = authority.issue("first", "127.0.0.1"), authority.issue("second", "127.0.0.1")
    used = authority.issue("used", "127.0.0.1")
    for source, target in ((first.certificate, used.certificate), (first.key, used.key)):
        shutil.copy(source, target)
    gateway = encrypted(NEREUS_TLS_CERT=str(used.certificate), NEREUS_TLS_KEY=str(used.key))
    ports = (gateway.port, grpc_port(gateway))
    assert [serial(port, authority.file) for port in ports] == [first.serial] * 2
    kept = httpx2.Limits(keepalive_expiry=600)
    with httpx2.Client(verify=ssl.create_default_context(cafile=authority.file), timeout=60, limits=kept) as client:
        live = f"{gateway.url}/v2/health/live"
        stream = client.get(live).extensions["network_stream"]
        # A half replaced pair is no reason to stop serving; the whole one is used.
        shutil.copy(second.certificate, used.certificate)
        wait_for(lambda: any("certificate_not_replaced" in line for line in gateway.log), "the mistake is in the log")
        assert serial(gateway.port, authority.file) == first.serial
        shutil.copy(second.key, used.key)
        wait_for(lambda: {serial(port, authority.file) for port in ports} == {second.serial}, "it is used")
        again = client.get(live)
        assert again.status_code == 200 and again.extensions["network_stream"] is stream


def test_a_scanner_finds_nothing_to_object_to(encrypted, tmp_path):
    authority = Authority(tmp_path)
    issued = authority.issue("box", "127.0.0.1", "localhost")
    gateway = encrypted(NEREUS_TLS_CERT=str(issued.certificate), NEREUS_TLS_KEY=str(issued.key))
    assert objections([gateway.port, grpc_port(gateway)], authority.file) == [{}, {}]
