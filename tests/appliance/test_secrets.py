"""Secrets survive power cuts, and rows in the database the loss of their files."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command

from appliance import secrets
from appliance.local.firststart import prepare
from registry import authority, console_key, members
from registry.models import ApiKey, ApiToken, JoinToken, Node, hash_secret
from tests.running import ROOT
from workers.settings import Settings, SettingsError
from workers.trust.server import OwnCertificate


@pytest.fixture
def home(tmp_path, settings):
    settings.NEREUS = Settings.from_environ({"NEREUS_HOME": str(tmp_path)})
    return tmp_path


def works(values: dict) -> None:
    user = get_user_model().objects.get(username=values["console_user"])
    assert user.check_password(values["console_password"]) and user.is_superuser
    assert ApiToken.objects.get(token_hash=hash_secret(values["api_token"])).user == user
    assert ApiKey.objects.filter(key_hash=hash_secret(values["api_key"])).count() == 1
    assert JoinToken.objects.filter(token_hash=hash_secret(values["join_token"]), auto_approve=True).count() == 1


def rows() -> set[tuple]:
    return {
        *(("user", user.username, user.password) for user in get_user_model().objects.all()),
        *(("token", token.name, token.token_hash) for token in ApiToken.objects.all()),
        *(("key", key.name, key.key_hash) for key in ApiKey.objects.all()),
        *(("join", token.name, token.token_hash) for token in JoinToken.objects.all()),
    }


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"api_key": 5}', b"\xff\x00", b"\x00" * 300])
def test_credentials_that_a_power_cut_broke_are_absent(tmp_path, content):
    (tmp_path / "credentials.json").write_bytes(content)
    assert secrets.credentials(tmp_path) == {}
    made = secrets.make_credentials(tmp_path)
    assert set(secrets.ENTRIES) < set(made)
    assert secrets.make_credentials(tmp_path) == made
    assert (tmp_path / "credentials.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe"])
def test_a_signing_key_is_made_once_also_after_a_power_cut(tmp_path, content):
    if content is not None:
        (tmp_path / "secret_key").write_bytes(content)
    code = "import pathlib, sys; from appliance.secrets import secret_key; print(secret_key(pathlib.Path(sys.argv[1])))"
    starts = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    keys = {start.communicate(timeout=120)[0].splitlines()[-1] for start in starts}
    assert len(keys) == 1, "starts at the same time agree"
    (key,) = keys
    assert len(key) >= 50 and secrets.secret_key(tmp_path) == key


def test_a_signing_key_that_cannot_be_stored_stops_nothing(tmp_path):
    assert len(secrets.secret_key(tmp_path / "missing")) >= 50


def test_a_wrong_database_url_is_named_without_its_password():
    with pytest.raises(SettingsError) as caught:
        Settings.from_environ({"NEREUS_DATABASE_URL": "mysql://nereus:hunter2@db/nereus"})
    assert "NEREUS_DATABASE_URL: must be a URL that begins with postgresql://" in str(caught.value)
    assert "hunter2" not in str(caught.value)


# --- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_the_first_start_prints_the_password_and_no_later_one(home):
    (line,) = prepare()
    values = secrets.credentials(home)
    assert values["console_password"] in line
    works(values)
    before = rows()
    assert prepare() == []
    assert rows() == before and secrets.credentials(home) == values


@pytest.mark.django_db
def test_the_consoles_key_ends_with_the_signing_key_that_it_follows_from(home, settings):
    settings.SECRET_KEY = "leaked"
    prepare()
    leaked, new = console_key.ready()
    assert new and console_key.ready() == (leaked, False)
    members.create_api_key("console-of-others")
    prepare()
    assert console_key.ready() == (leaked, False), "a start alone ends nothing"
    settings.SECRET_KEY = "replaced"
    prepare()
    assert not ApiKey.objects.filter(key_hash=hash_secret(leaked)).exists()
    assert ApiKey.objects.filter(name="console-of-others").exists()
    key, new = console_key.ready()
    assert new and key != leaked


@pytest.mark.django_db
def test_credentials_of_an_earlier_release_stay(home):
    prepare()
    values, before = secrets.credentials(home), rows()
    old = {name: value for name, value in values.items() if name != "installed"}
    secrets.save_credentials(home, old)
    assert prepare() == []
    assert rows() == before and secrets.credentials(home) == values


@pytest.mark.django_db
@pytest.mark.parametrize("lost", ["file", "home"])
def test_lost_credentials_replace_nothing(home, lost):
    """As a second home on the same database would not."""
    prepare()
    before = rows()
    (home / "credentials.json").write_bytes(b"" if lost == "file" else b"{}")
    lines = prepare()
    assert before < rows()
    values = secrets.credentials(home)
    works(values)
    assert values["console_user"] == "admin-2"
    assert set(ApiKey.objects.values_list("name", flat=True)) == {"local", "local-2"}
    assert "admin stays as it is" in lines[0] and values["console_password"] in lines[1]
    assert prepare() == []


@pytest.mark.django_db
def test_a_start_that_was_cut_off_is_completed(home):
    prepare()
    values, before = secrets.credentials(home), rows()
    # Power went between the database and the file.
    secrets.save_credentials(home, values | {"installed": []})
    assert prepare() == []
    assert rows() == before and secrets.credentials(home) == values


@pytest.mark.django_db
def test_a_password_that_was_changed_leaves_the_file(home):
    prepare()
    user = get_user_model().objects.get()
    user.set_password("another one")
    user.save()
    assert prepare() == []
    assert get_user_model().objects.get(username="admin").check_password("another one")
    assert "console_password" not in secrets.credentials(home)
    assert prepare() == []


@pytest.mark.django_db
def test_what_an_operator_deleted_stays_deleted(home):
    prepare()
    old = secrets.credentials(home)
    ApiKey.objects.all().delete()
    JoinToken.objects.all().delete()
    prepare()
    values = secrets.credentials(home)
    works(values)
    assert values["api_key"] != old["api_key"] and values["join_token"] != old["join_token"]
    get_user_model().objects.create_superuser("owner", password="x")
    get_user_model().objects.get(username="admin").delete()
    assert "was deleted" in prepare()[0]
    assert not get_user_model().objects.filter(username="admin").exists()
    assert prepare() == []


@pytest.mark.django_db
def test_tokens_made_in_the_console_stay(home):
    prepare()
    mine = {"user": get_user_model().objects.get(), "prefix": "another", "token_hash": hash_secret("another")}
    ApiToken.objects.all().delete()
    ApiToken.objects.create(name="local", role="operator", **mine)
    assert prepare() == []
    works(secrets.credentials(home))
    assert ApiToken.objects.get(name="local").token_hash == mine["token_hash"]
    assert ApiToken.objects.count() == 2
    assert prepare() == []


@pytest.mark.django_db
def test_all_credentials_are_renewed_at_once(home):
    prepare()
    old, before = secrets.credentials(home), rows()
    key = secrets.secret_key(home)
    ApiKey.objects.create(name="client", prefix="x", key_hash="y")
    Node.objects.create(name="box", state="approved", credential_hash=hash_secret("old"))
    issuer, printed = authority.locked().key_hash, io.StringIO()
    call_command("rotate", all=True, stdout=printed)
    values = secrets.credentials(home)
    works(values)
    assert "rotated password" in printed.getvalue() and values["console_password"] not in printed.getvalue()
    assert Node.objects.get().credential_hash == ""
    assert not before & rows()
    assert not {name for name in secrets.ENTRIES[1:] if values[name] == old[name]}
    assert secrets.secret_key(home) != key
    assert authority.key_hash() != issuer
    assert ApiKey.objects.filter(name="client").exists(), "others' keys are not this appliance's to replace"
    assert prepare() == []
    works(values)


@pytest.mark.django_db
def test_another_database_gets_the_same_credentials(home):
    prepare()
    values = secrets.credentials(home)
    for model in (ApiToken, get_user_model(), ApiKey, JoinToken):
        model.objects.all().delete()
    (line,) = prepare()
    assert values["console_password"] in line
    works(json.loads((home / "credentials.json").read_text()))
    assert secrets.credentials(home) == values


def manage(home: Path, *command: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *command],
        cwd=home.parent,
        env={"PATH": "/usr/bin:/bin", "NEREUS_HOME": str(home), "NEREUS_TLS": "on"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("command", [["rotate", "--all"], ["rotate", "tls"], ["backup", "copy.tar"]])
def test_a_home_where_no_appliance_has_run_is_named(command, tmp_path):
    done = manage(tmp_path / "mistyped", *command)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "mistyped" in done.stderr and "NEREUS_HOME" in done.stderr
    assert not (tmp_path / "copy.tar").exists()


def test_a_gateways_box_replaces_its_certificate_without_a_database(tmp_path):
    own = OwnCertificate(tmp_path / "home" / "tls")
    own.ensure(["localhost"])
    before, authority_before = own.server_file.read_bytes(), own.authority_file.read_bytes()
    done = manage(tmp_path / "home", "rotate", "tls")
    assert done.returncode == 0, done.stderr
    assert own.server_file.read_bytes() != before and own.authority_file.read_bytes() == authority_before
    assert manage(tmp_path / "home", "rotate", "tls-authority").returncode == 0
    assert own.authority_file.read_bytes() != authority_before
    assert not list((tmp_path / "home").glob("*sqlite*"))
