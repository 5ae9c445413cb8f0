"""Build one file for installations without a network (``make bundle``).

It has all that such an installation needs: the code (as ``make release`` makes it), the Ansible collection, wheels for
each machine and Python, Debian's packages as a repository, ``MANIFEST.sha256`` with the digest of each file to verify
it by, and ``verify``, which needs ``sh`` and ``sha256sum`` alone.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import workers
from tools import locks

ROOT = Path(__file__).parent.parent
MANIFEST = "MANIFEST.sha256"
#: machines as Python names them, with Debian's name
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
#: the Pythons of Debian 12, Ubuntu 24.04 and Debian 13; what is needed depends on the last figure, too
PYTHONS = {"3.11": "3.11.2", "3.12": "3.12.3", "3.13": "3.13.5"}
SUITES = ("bookworm", "trixie")
#: what the Ansible role installs on a box (nereus_packages)
PACKAGES = ("python3", "python3-venv", "tar", "tzdata", "redis-server")
MIRROR = "http://deb.debian.org/debian"
#: newest glibc that wheels may ask for: Debian 12 has 2.36
GLIBC = range(36, 4, -1)
#: the same script that the Ansible role verifies with
VERIFY = ROOT / "ansible" / "roles" / "nereus" / "files" / "verify"


def main(arguments: list[str]) -> None:
    """Build the bundle, and print its size and digest and what could not be obtained."""
    parser = argparse.ArgumentParser(prog="python -m tools.bundle", description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="where the bundle goes; the release archive is there")
    parser.add_argument("--machines", nargs="+", default=list(MACHINES), choices=list(MACHINES))
    parser.add_argument("--pythons", nargs="+", default=list(PYTHONS), choices=list(PYTHONS))
    parser.add_argument("--suites", nargs="*", default=list(SUITES))
    options = parser.parse_args(arguments)
    name = f"nereus-bundle-{workers.__version__}"
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        contents = Path(scratch) / name
        contents.mkdir()
        missing = list(fill(contents, options))
        shutil.copy(VERIFY, contents)
        digest = write_manifest(contents)
        target = options.folder / f"{name}.tar"
        pack(contents, target)
    for line in missing:
        print(f"not in the bundle: {line}", file=sys.stderr)
    print(f"{target}: {target.stat().st_size / 1e6:.0f} MB\nSHA-256 of its {MANIFEST}: {digest}")


def fill(contents: Path, options: argparse.Namespace) -> Iterator[str]:
    """Put code, collection, wheels and packages into a folder.

    Yields a line for everything that could not be obtained.
    """
    shutil.copy(options.folder / f"nereus-{workers.__version__}.tar.gz", contents)
    collection = [_tool("ansible-galaxy"), "collection", "build", str(ROOT / "ansible"), "--output-path", str(contents)]
    _run([*collection, "--force"])
    for machine in options.machines:
        for version in options.pythons:
            yield from wheels(contents / "wheels" / machine, machine, version)
    for suite in options.suites:
        for machine in options.machines:
            yield from packages(contents / "debs" / f"{suite}-{MACHINES[machine]}", suite, MACHINES[machine])


def target(machine: str, version: str) -> dict[str, str]:
    """The environment that markers of the locks are evaluated in."""
    return {
        "sys_platform": "linux",
        "platform_machine": machine,
        "python_version": version,
        "python_full_version": PYTHONS[version],
    }


def requirements(machine: str, version: str) -> list[str]:
    """What the locks of all roles have for such a machine, without markers: pip evaluates these for its own machine."""
    environment = target(machine, version)
    found = []
    for requirement in locks.requirements(*locks.EXTRAS, "cpu").values():
        if requirement.marker is None or requirement.marker.evaluate(environment):
            requirement.marker = None
            found.append(str(requirement))
    return found


def wheels(folder: Path, machine: str, version: str) -> Iterator[str]:
    """Download wheels of all requirements.

    Where that fails, those that can be obtained are downloaded, and a line is yielded for the others.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = requirements(machine, version)
    if _download(folder, machine, version, wanted):
        return
    for requirement in wanted:
        if not _download(folder, machine, version, [requirement]):
            yield f"{requirement} for {machine}, Python {version}: no wheel"


def _download(folder: Path, machine: str, version: str, wanted: list[str]) -> bool:
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in GLIBC] + [f"manylinux2014_{machine}"]
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    command = [sys.executable, "-m", "pip", "download", *options]
    command += [word for platform in platforms for word in ("--platform", platform)]
    command += ["--python-version", version, "--implementation", "cp", *wanted]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def packages(folder: Path, suite: str, architecture: str) -> Iterator[str]:
    """Download Debian's packages and their dependencies as a repository for apt.

    Yields a line if they cannot be obtained.
    """
    if shutil.which("apt-get") is None:
        yield f"packages of {suite} ({architecture}): apt-get is not installed here"
        return
    with tempfile.TemporaryDirectory() as scratch:
        apt = _private_apt(Path(scratch), suite, architecture)
        try:
            _run(["apt-get", *apt, "update"])
            _run(["apt-get", *apt, "--yes", "--no-install-recommends", "--download-only", "install", *PACKAGES])
        except subprocess.CalledProcessError as error:
            yield f"packages of {suite} ({architecture}): {error.stderr.decode(errors='replace').strip()[-300:]}"
            return
        folder.mkdir(parents=True)
        entries = []
        for package in sorted(Path(scratch, "cache/archives").glob("*.deb")):
            # apt writes colons of versions as %3a, which a URL would undo.
            target = folder / package.name.replace("%", "_")
            shutil.copy(package, target)
            fields = _run(["dpkg-deb", "--field", str(target)]).strip()
            digest = hashlib.sha256(target.read_bytes()).hexdigest()
            entries.append(f"{fields}\nFilename: ./{target.name}\nSize: {target.stat().st_size}\nSHA256: {digest}\n")
        (folder / "Packages.gz").write_bytes(gzip.compress("\n".join(entries).encode(), mtime=0))


def _private_apt(folder: Path, suite: str, architecture: str) -> list[str]:
    """Return options for an apt with a folder of its own.

    Nothing is installed yet there, so that everything that the packages need is downloaded.
    """
    for name in ("state/lists/partial", "cache/archives/partial", "etc/parts"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    signed = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    (folder / "etc/sources.list").write_text(f"deb {signed} {MIRROR} {suite} main\n")
    values = {
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": folder / "etc/sources.list",
        "Dir::Etc::sourceparts": folder / "etc/parts",
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Sandbox::User": "root",
    }
    return [word for name, value in values.items() for word in ("-o", f"{name}={value}")]


def write_manifest(contents: Path) -> str:
    """Write the digests of all files; returns the manifest's own."""
    lines = [f"{digest}  {name}\n" for name, digest in sorted(_digests(contents))]
    (contents / MANIFEST).write_text("".join(lines))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _digests(contents: Path) -> Iterable[tuple[str, str]]:
    for path in contents.rglob("*"):
        if path.is_file() and path != contents / MANIFEST:
            with path.open("rb") as file:
                yield path.relative_to(contents).as_posix(), hashlib.file_digest(file, "sha256").hexdigest()


def pack(contents: Path, target: Path) -> None:
    """One archive, with names sorted and owners left out."""

    def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    partial = target.with_suffix(".partial")
    with tarfile.open(partial, "w") as archive:
        archive.add(contents, contents.name, filter=anonymous)
    partial.rename(target)


def _tool(name: str) -> str:
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else name


def _run(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, check=True).stdout.decode()


if __name__ == "__main__":
    main(sys.argv[1:])
