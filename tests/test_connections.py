"""Database and Redis over TLS with a private authority, on real servers; options of their URLs pass through."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from urllib.parse import quote

import kombu
import psycopg
import pytest
import redis

from appliance import connections
from appliance.redis_server import executable as redis_executable
from tests.authority import Authority
from tests.forked import of_commands
from tests.postgresql import USER, program
from tests.running import eventually, free_ports, redis_answers
from workers.settings import SettingsError


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory):
    """(port, socket folder, authority) of a PostgreSQL that takes TLS alone over TCP."""
    if not program("initdb"):
        pytest.skip("no PostgreSQL on this box")
    folder = Path("/tmp") / f"nereus-pg-{os.getpid()}"
    folder.mkdir(mode=0o755)
    authority = Authority(tmp_path_factory.mktemp("ca"))
    issued = authority.issue("pg", "localhost")
    parts = (issued.certificate, "server.crt"), (issued.key, "server.key"), (authority.file, "clients.crt")
    for source, name in parts:
        shutil.copy(source, folder / name)
    data = folder / "data"
    if USER:
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, USER["user"], USER["group"])
    (port,) = free_ports(1)
    run = {"check": True, "capture_output": True, "cwd": folder, **USER}
    subprocess.run([program("initdb"), "-D", data, "-U", "nereus", "--auth=trust", "-N"], **run)
    (data / "pg_hba.conf").write_text(
        "local all all trust\nhostssl all certified all cert\nhostssl all all all trust\n"
    )
    files = (
        f"-c ssl_cert_file={folder}/server.crt -c ssl_key_file={folder}/server.key "
        f"-c ssl_ca_file={folder}/clients.crt -c unix_socket_directories={folder}"
    )
    options = f"-c ssl=on {files} -c listen_addresses=127.0.0.1 -p {port} -F"
    log = ["-l", folder / "log", "-w", "-t", "120"]
    subprocess.run([program("pg_ctl"), "-D", data, "-o", options, *log, "start"], **run)
    yield port, folder, authority
    subprocess.run([program("pg_ctl"), "-D", data, "-m", "immediate", "stop"], **run)
    shutil.rmtree(folder)


def manage(home: Path, code: str, **settings: str) -> subprocess.CompletedProcess:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("NEREUS_", "PG", "DJANGO"))}
    environ |= {"NEREUS_HOME": str(home), "DJANGO_SETTINGS_MODULE": "appliance.settings"} | settings
    return of_commands().run("-c", f"import django; django.setup(); {code}", env=environ)


QUERY = (
    "from django.db import connection; c = connection.cursor(); "
    "c.execute('select coalesce((select ssl::text from pg_stat_ssl where pid = pg_backend_pid()), %s)', ['none']); "
    "print(c.fetchone()[0])"
)


def test_postgresql_is_verified_by_the_ca_file_and_reached_over_its_socket(postgresql, tmp_path):
    port, folder, authority = postgresql
    secure = f"postgresql://nereus@localhost:{port}/postgres?sslmode=verify-full&connect_timeout=2"
    done = manage(tmp_path, QUERY, NEREUS_DATABASE_URL=secure, NEREUS_CA_FILE=str(authority.file))
    assert done.stdout.strip() == "true", done.stderr[-2000:]
    over_socket = f"postgresql://nereus@/postgres?host={quote(str(folder))}&port={port}"
    done = manage(tmp_path, QUERY, NEREUS_DATABASE_URL=over_socket)
    assert done.stdout.strip() == "false", done.stderr[-2000:]
    # A stranger's authority, a name that the certificate lacks, no TLS at all: none of them is let pass.
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    for url, authority_file in (
        (secure, Authority(stranger).file),
        (secure.replace("@localhost", "@127.0.0.1"), authority.file),
        (secure.replace("verify-full", "disable"), authority.file),
    ):
        place, _ = connections.libpq(connections.postgresql(url, authority_file))
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(place)


def test_postgresql_knows_the_control_plane_by_a_client_certificate(postgresql, tmp_path):
    port, folder, authority = postgresql
    with psycopg.connect(f"postgresql://nereus@/postgres?host={quote(str(folder))}&port={port}") as connection:
        connection.execute("create role certified login")
    place = f"postgresql://certified@localhost:{port}/postgres?sslmode=verify-full"

    def url(stem: str, *names: str) -> str:
        issued = authority.issue(stem, *names, client=True)
        return f"{place}&sslcert={quote(str(issued.certificate))}&sslkey={quote(str(issued.key))}"

    known = url("known", "certified")
    done = manage(tmp_path, QUERY, NEREUS_DATABASE_URL=known, NEREUS_CA_FILE=str(authority.file))
    assert done.stdout.strip() == "true", done.stderr[-2000:]
    # Backups reach it alike.
    given, _ = connections.libpq(connections.postgresql(known, authority.file))
    dump = [program("pg_dump"), "--no-password", "--schema-only", f"--dbname={given}"]
    assert (
        "PostgreSQL database dump complete" in subprocess.run(dump, check=True, capture_output=True, text=True).stdout
    )
    for other in (place, url("other", "another")):
        given, _ = connections.libpq(connections.postgresql(other, authority.file))
        with pytest.raises(psycopg.OperationalError, match="certificate"):
            psycopg.connect(given)


def test_options_of_a_database_url_are_checked_and_its_password_is_not_printed(tmp_path):
    done = manage(tmp_path, "pass", NEREUS_DATABASE_URL="postgresql://u:secret@h/d?sslmod=require")
    assert done.returncode != 0 and "NEREUS_DATABASE_URL" in done.stderr and 'sslmod"' in done.stderr
    assert "secret" not in done.stderr
    made = connections.postgresql("postgresql://u:p%40@db.example:5433/n?application_name=x", tmp_path / "ca.pem")
    given = {name: made[name] for name in ("USER", "PASSWORD", "HOST", "PORT", "NAME")}
    assert given == {"USER": "u", "PASSWORD": "p@", "HOST": "db.example", "PORT": "5433", "NAME": "n"}
    assert {name: value for name, value in made["OPTIONS"].items() if name != "pool"} == {
        "application_name": "x",
        "connect_timeout": "10",
        "sslmode": "verify-full",
        "sslrootcert": str(tmp_path / "ca.pem"),
    }
    for end in ("h:port/d", "h/d?=1", "u:secret@[::1/d", "h:99999/d"):
        with pytest.raises(SettingsError, match="NEREUS_DATABASE_URL: must be postgresql://") as refused:
            connections.postgresql(f"postgresql://{end}", None)
        assert "secret" not in str(refused.value)
    # Sockets in the host's place, several hosts, options of the session.
    socket_url = "postgresql://u@%2Fvar%2Frun%2FPG/d?options=-c%20lock_timeout%3D5s"
    made = connections.postgresql(socket_url, tmp_path / "ca.pem")
    assert (made["HOST"], made["OPTIONS"]["options"]) == ("/var/run/PG", "-c lock_timeout=5s")
    assert "sslmode" not in made["OPTIONS"]
    made = connections.postgresql("postgresql://a,b:5433/d?target_session_attrs=read-write", None)
    assert (made["HOST"], made["PORT"]) == ("a,b", ",5433")


@pytest.fixture
def encrypted_redis(tmp_path):
    """(port, authority) of TLS in front of a real Redis, as stunnel would be."""
    authority = Authority(tmp_path)
    issued = authority.issue("redis", "localhost")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(issued.certificate, issued.key)
    (plain,) = free_ports(1)
    command = [redis_executable(), "--port", str(plain), "--bind", "127.0.0.1", "--save", ""]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=tmp_path)
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            end.close()

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                client = context.wrap_socket(client, server_side=True)
                behind = socket.create_connection(("127.0.0.1", plain))
            except OSError:
                client.close()
                continue
            for ends in ((client, behind), (behind, client)):
                threading.Thread(target=pump, args=ends, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    eventually(lambda: redis_answers(redis.Redis(port=plain)), why="Redis answers", of=[server])
    yield listener.getsockname()[1], authority
    listener.close()
    server.kill()
    server.wait()


def test_redis_is_verified_by_every_client_of_it(encrypted_redis, tmp_path):
    """redis-py, and Celery's broker, which by itself verifies nothing."""
    port, authority = encrypted_redis
    folder = tmp_path / "stranger"
    folder.mkdir()
    stranger = Authority(folder)
    for host, trusted, accepted in (
        ("localhost", authority, True),
        ("localhost", stranger, False),
        ("127.0.0.1", authority, False),
    ):
        url = connections.redis(f"rediss://{host}:{port}/0", trusted.file)
        address, tls = connections.broker(url)
        assert tls["ssl_cert_reqs"] == ssl.CERT_REQUIRED
        with kombu.Connection(address, ssl=tls, connect_timeout=20 if accepted else 1) as broker:
            if accepted:
                assert redis.Redis.from_url(url).ping()
                broker.default_channel.client.ping()
            else:
                with pytest.raises(redis.ConnectionError):
                    redis.Redis.from_url(url).ping()
                with pytest.raises((redis.ConnectionError, kombu.exceptions.OperationalError)):
                    broker.default_channel.client.ping()


def test_urls_without_tls_stay_as_they_are(tmp_path):
    assert connections.broker("unix:///run/redis.sock") == ("redis+socket:///run/redis.sock", False)
    assert connections.broker("unix://u:p@/run/redis.sock?db=2") == (
        "redis+socket://u:p@/run/redis.sock?virtual_host=2",
        False,
    )
    assert connections.broker("redis://:p@h:6379/1") == ("redis://:p@h:6379/1", False)
    assert connections.redis("redis://h:6379/1", tmp_path) == "redis://h:6379/1"
    assert connections.redis("rediss://h:6379/1?ssl_ca_certs=/x", tmp_path) == "rediss://h:6379/1?ssl_ca_certs=/x"
