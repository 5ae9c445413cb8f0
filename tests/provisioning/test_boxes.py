"""The playbooks on Debian 12 and 13.

Each box has its own systemd and sshd, on a bridge that leads nowhere.

Everything comes from a bundle. One cluster lives through all of it, in order.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from pathlib import Path

import httpx2
import pytest

import workers
from tests.provisioning import boxes
from tests.provisioning.cluster import HOME, SAME_PACKAGES, SUITES, Cluster, changed, succeeded
from tests.running import ROOT, eventually, register, v2_request

pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(boxes.available()), reason=boxes.available() or "available")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster.running(Path("/var/tmp") / tmp_path_factory.mktemp("boxes").name) as made:
        yield made


def test_a_tampered_bundle_is_refused_before_a_box_is_touched(cluster):
    extra = cluster.bundle / "wheels" / "extra-1.0-py3-none-any.whl"
    extra.write_text("not from us")
    refused = cluster.play("site.yml")
    extra.unlink()
    assert refused.returncode != 0 and "extra-1.0" in refused.stdout
    assert cluster.site.boxes["c"].ssh("test -e /opt/nereus", check=False).returncode != 0


def test_bare_boxes_become_a_cluster_without_a_network(cluster):
    assert cluster.site.boxes["c"].ssh("ip route get 192.0.2.1", check=False).returncode != 0, "there is a way out"
    would = succeeded(cluster.play("site.yml", "--check"))
    assert "would be installed" in would
    text = succeeded(cluster.play("site.yml"))
    assert {name for name, node in cluster.nodes().items() if node["connected"]} == {"n1", "n2"}
    secret = json.loads(cluster.site.boxes["c"].ssh("cat /var/lib/nereus/credentials.json").stdout)
    assert not [name for name in ("api_token", "api_key", "join_token") if secret[name] in text]
    assert json.loads(cluster.manage("rest GET join-tokens/"))[0]["name"] == "local", "used tokens are gone"
    assert changed(succeeded(cluster.play("site.yml"))) == 0
    assert changed(succeeded(cluster.play("site.yml", "--check"))) == 0


@pytest.fixture(scope="module")
def key(cluster, tiny_models) -> str:
    with cluster.rest() as rest:
        if rest.get("/applications/tiny/").status_code == 404:
            register(rest, "tiny", {"quick": tiny_models["quick"]}, slo_ms=2000, late="serve")
    return client_key(cluster)


def client_key(cluster: Cluster) -> str:
    with cluster.rest() as rest:
        found = rest.post("/api-keys/", json={"name": f"clients-{secrets.token_hex(3)}"}).json()["key"]
    for name in ("g", "n1"):
        eventually(lambda name=name: answered(cluster, name, found), why=f"a query is answered through {name}")
    return found


def answered(cluster: Cluster, name: str, key: str) -> bool:
    url = f"https://{cluster.site.boxes[name].address}:8000/v2/models/tiny/infer"
    with httpx2.Client(verify=cluster.trust(), timeout=30) as client:
        return client.post(url, json=v2_request(), headers={"Authorization": f"Bearer {key}"}).status_code == 200


def cordoned(cluster: Cluster) -> set[str]:
    with contextlib.suppress(httpx2.TransportError, KeyError, AssertionError), cluster.rest() as rest:
        return {node["name"] for node in rest.get("/nodes/").json()["results"] if node["cordoned_at"]}
    return set()


@contextlib.contextmanager
def no_query_fails(cluster: Cluster, key: str):
    with cluster.load(key) as load, cluster.grpc_load(key) as calls:
        yield
    report = load.report
    print(
        f"{report.sent} queries, {report.refused} connections refused, slowest {report.slowest_s:.2f} s; {calls.sent}"
    )
    print(*report.errors[:20], *calls.errors[:20], sep="\n")
    assert report.errors == [] and report.ok == report.sent
    assert calls.errors == [] and min(calls.sent.values()) > 0


@pytest.mark.parametrize("name", SUITES)
def test_each_unit_keeps_its_service_from_the_box(cluster, name):
    judged = cluster.site.boxes[name].ssh("systemd-analyze security --threshold=30 --no-pager nereus", check=False)
    assert judged.returncode == 0, judged.stdout


def test_boxes_that_were_upgraded_return_to_the_release_before_without_a_query_lost(cluster, key):
    (before,), name = set(cluster.versions().values()), cluster.release_in_use("n2")
    with no_query_fails(cluster, key):
        succeeded(cluster.play("upgrade.yml", nereus_archive=cluster.release("9.0"), **SAME_PACKAGES))
        assert set(cluster.versions().values()) == {"9.0"}
    with no_query_fails(cluster, key):
        cluster.manage("rest POST nodes/n2/cordon/")
        succeeded(cluster.play("rollback.yml", "--limit", "n2"))
        assert cluster.versions()["n2"] == before
        assert cordoned(cluster) == {"n2"}
        cluster.manage("rest DELETE nodes/n2/cordon/")
        # Only now, since a node that is cordoned would leave the other one alone.
        cluster.manage("member node n2 --wait 60")
        refused = cluster.play("rollback.yml")
        assert refused.returncode != 0 and "different releases" in refused.stdout
        succeeded(cluster.play("rollback.yml", nereus_release=name))
    assert set(cluster.versions().values()) == {before}
    assert cordoned(cluster) == set()


def test_an_upgrade_that_is_cut_off_and_started_again_loses_no_query(cluster, key):
    archive = cluster.release("9.1")
    with no_query_fails(cluster, key):
        run = cluster.begin("upgrade.yml", nereus_archive=archive, **SAME_PACKAGES)
        try:
            eventually(lambda: run.poll() is not None or "n2" in cordoned(cluster), 1500, every=1)
            assert run.poll() is None, "it ended before the second node's turn"
        finally:
            cluster.cut_off(run)
        assert cluster.versions() == {"c": "9.1", "g": "9.1", "n1": "9.1", "n2": workers.__version__}
        assert cordoned(cluster) == {"n2"}
        succeeded(cluster.play("upgrade.yml", nereus_archive=archive, **SAME_PACKAGES))
    assert set(cluster.versions().values()) == {"9.1"}
    assert cordoned(cluster) == set()


def test_a_node_that_fails_its_gate_returns_and_stops_the_run(cluster, key):
    """Without a query lost; also when the others follow it."""
    (before,), name = set(cluster.versions().values()), cluster.release_in_use("n2")
    reason = "import socket\nif socket.gethostname() == 'n2':\n    raise RuntimeError('a node that does not start')\n"
    broken = cluster.release("9.2", **{"workers/node/__main__.py": reason + source("workers/node/__main__.py")})
    # Only of the one that is to fail: on a busy machine others take longer.
    patience = "{{ 90 if inventory_hostname == 'n2' else 300 }}"
    with no_query_fails(cluster, key):
        refused = cluster.play("upgrade.yml", nereus_archive=broken, nereus_wait_s=patience, **SAME_PACKAGES)
        assert refused.returncode != 0 and "is in use again" in refused.stdout
        assert cluster.versions() == {"c": "9.2", "g": "9.2", "n1": "9.2", "n2": before}
        assert cordoned(cluster) == set()
    with no_query_fails(cluster, key):
        succeeded(cluster.play("rollback.yml", nereus_release=name))
    assert set(cluster.versions().values()) == {before}
    assert cordoned(cluster) == set()


def source(name: str) -> str:
    return (ROOT / name).read_text().replace("from __future__ import annotations\n", "")


def test_secrets_are_replaced_and_members_connect_again(cluster, key):
    """Secrets are replaced, and members connect again.

    That is done twice, with clients that do what they have to in between: they take the new authorities, and another
    key.
    """
    every = ["password", "api-token", "api-key", "join-token", "members", "members-authority", "signing-key"]
    for _ in range(2):
        before, keys = secrets_of(cluster), members_keys(cluster)
        with no_query_fails(cluster, client_key(cluster)):
            succeeded(cluster.play("rotate.yml", nereus_rotate=[*every, "tls-authority"]))
        assert all(node["connected"] for node in cluster.nodes().values())
        assert cordoned(cluster) == set()
        assert not members_keys(cluster) & keys
        after = secrets_of(cluster)
        no_secrets = {"console_user", "installed"}
        assert not [name for name in before.keys() - no_secrets if before[name] == after[name]]
    with cluster.rest() as rest:
        assert rest.get("/nodes/").status_code == 200, "with the new authority and token"


def secrets_of(cluster: Cluster) -> dict[str, str]:
    return json.loads(cluster.site.boxes["c"].ssh(f"cat {HOME}/credentials.json").stdout)


def members_keys(cluster: Cluster) -> set[str]:
    members = [*cluster.nodes().values(), *json.loads(cluster.manage("rest GET gateways/"))]
    return {member["certificate"]["key"] for member in members}


def test_a_backup_comes_back_without_the_cordons_of_an_upgrade(cluster, key, tmp_path):
    cluster.manage('rest POST api-keys/ --data \'{"name": "kept"}\'')
    cluster.manage("rest POST nodes/n2/cordon/ --data '{\"seconds\": 45}'")
    succeeded(cluster.play("backup.yml", nereus_backup_to=str(tmp_path)))
    cluster.manage("rest DELETE nodes/n2/cordon/")
    cluster.manage("rest DELETE api-keys/kept/")
    (copy,) = tmp_path.glob("*.tar")
    assert tmp_path.stat().st_mode & 0o077 == 0
    with no_query_fails(cluster, key):
        succeeded(cluster.play("restore.yml", nereus_restore=str(copy)))
        eventually(lambda: cluster.nodes()["n2"]["cordoned_at"] is None, 120, every=2, why="the cordon has ended")
        cluster.manage("member node n2 --wait 60")
    assert "kept" in cluster.manage("rest GET api-keys/")


def test_boxes_are_taken_off(cluster, key):
    """Their data stays unless it is to go."""
    assert cluster.play("remove.yml", "--limit", "n2").returncode != 0
    with no_query_fails(cluster, key):
        succeeded(cluster.play("remove.yml", "--limit", "n2", nereus_remove=True))
    box = cluster.site.boxes["n2"]
    assert box.ssh("test -e /opt/nereus", check=False).returncode != 0
    box.ssh(f"test -d {HOME}/members")
    assert set(cluster.nodes()) == {"n1"}
    alone = cluster.site.boxes["c"].ssh(
        "runuser -u nereus -- /opt/nereus/current/nereus rest POST nodes/n1/cordon/", check=False
    )
    assert alone.returncode != 0 and "409" in alone.stderr and "tiny" in alone.stderr
    text = succeeded(cluster.play("remove.yml", nereus_remove=True, nereus_remove_data=True))
    assert "n1 is not drained" in text
    for box in cluster.site.boxes.values():
        assert box.ssh(f"test -e /opt/nereus || test -e {HOME} || id nereus", check=False).returncode != 0
