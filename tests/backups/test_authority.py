"""One authority of members' certificates for all control processes, on either database and in backups."""

from __future__ import annotations

import json

import pytest

from tests import postgresql
from tests.backups.test_backup import Home
from tests.trust.worlds import handshake
from workers.trust.authority import blocks
from workers.trust.member import MemberIdentity

pytestmark = pytest.mark.wide

PROCESSES = 3
#: a control process that answers requests on command
ISSUE = """
import json, sys
from registry.models import Node
from scheduler.members import certificates
from scheduler.members.peers import Peer
print("ready", flush=True)
for line in sys.stdin:
    name, request = json.loads(line)
    node = Node.objects.create(name=name, state="approved")
    issued = certificates.issue(node, request, Peer(), "")
    print(json.dumps([issued.certificate, issued.authorities, issued.refused]), flush=True)
"""
KEY = "from registry import authority; print(authority.key_hash())"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=postgresql.needed)])
def database(request) -> dict[str, str]:
    return {"NEREUS_DATABASE_URL": postgresql.database(migrated=False)} if request.param == "postgresql" else {}


def test_processes_that_issue_at_once_make_one_authority(tmp_path, database):
    home = Home(tmp_path / "home", **database)
    home.run("migrate", "-v", "0")
    started = [home.process("shell", "-v", "0", "-c", ISSUE) for _ in range(PROCESSES)]
    identities = [MemberIdentity(tmp_path / f"{n}.pem", "node", f"n{n}") for n in range(4 * PROCESSES)]
    try:
        for process in started:
            assert process.stdout.readline() == "ready\n"
        for number, identity in enumerate(identities):
            line = json.dumps([f"n{number}", identity.request()])
            process = started[number % PROCESSES]
            process.stdin.write(line + "\n")
            process.stdin.flush()
        for number, identity in enumerate(identities):
            certificate, authorities, refused = json.loads(started[number % PROCESSES].stdout.readline())
            assert not refused
            identity.store(certificate, authorities)
    finally:
        for process in started:
            process.stdin.close()
            process.wait(60)
    assert len({blocks(identity.pem)[-1] for identity in identities}) == 1
    for other in identities[1:]:
        assert handshake(identities[0].server_context(), other.client_context())
    # And a backup brings it to another home.
    if not database:
        home.run("backup", str(tmp_path / "backup.tar"))
        restored = Home(tmp_path / "restored")
        restored.run("restore", str(tmp_path / "backup.tar"))
        assert restored.python(KEY) == home.python(KEY)
