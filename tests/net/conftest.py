import pytest

from workers.trust.server import OwnCertificate


@pytest.fixture(scope="session")
def identity(tmp_path_factory) -> OwnCertificate:
    own = OwnCertificate(tmp_path_factory.mktemp("tls"))
    own.ensure(["localhost", "127.0.0.1"])
    return own
