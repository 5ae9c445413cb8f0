"""The packages of a release, as a bill of materials and a plain list.

``python -m appliance.sbom FOLDER`` writes both, the bill in CycloneDX's format, for the environment that runs it: those
of the locks that are installed here. Development's are left out, and nothing is fetched.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from appliance import locks
from workers import __version__

#: names of the two files
BILL, VERSIONS = "sbom.cdx.json", "versions.txt"


@dataclass(frozen=True)
class Package:
    """An installed distribution, and the names of those that it needs here."""

    name: str
    version: str
    license: str
    needs: tuple[str, ...]

    @property
    def purl(self) -> str:
        """The package's URL, by which lists of vulnerabilities know it."""
        return f"pkg:pypi/{self.name}@{self.version}"


class NotInstalled(Exception):
    """A requirement has no distribution of a fitting version in this environment."""


def requirements() -> list[Requirement]:
    """What the locks have for this machine, less the roles that it does not have."""
    found = locks.requirements(*locks.EXTRAS, "cpu").values()
    here = {canonicalize_name(one.name) for one in metadata.distributions()}
    return [one for one in found if canonicalize_name(one.name) in here and (not one.marker or one.marker.evaluate())]


def packages(wanted: list[Requirement]) -> dict[str, Package]:
    """Return the distributions that satisfy ``wanted``, with all that they need.

    They are sorted, by name.

    Raises:
        NotInstalled: one is missing, or does not fit.
    """
    found: dict[str, Package] = {}
    extras: dict[str, set[str]] = {}
    waiting = [(one, "the locks") for one in wanted]
    while waiting:
        one, asker = waiting.pop()
        if one.marker is not None and not one.marker.evaluate():
            continue
        name = canonicalize_name(one.name)
        if name in found and one.extras <= extras[name]:
            continue
        extras[name] = extras.get(name, set()) | one.extras
        found[name], needs = _package(one, name, asker, extras[name])
        waiting += [(need, name) for need in needs]
    return dict(sorted(found.items()))


def _package(one: Requirement, name: str, asker: str, extras: set[str]) -> tuple[Package, list[Requirement]]:
    try:
        distribution = metadata.distribution(one.name)
    except metadata.PackageNotFoundError:
        raise NotInstalled(f"{one} of {asker}: not installed") from None
    if not one.specifier.contains(distribution.version, prereleases=True):
        raise NotInstalled(f"{one} of {asker}: {distribution.version} is installed")
    needs = []
    for text in distribution.requires or ():
        need = Requirement(text)
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            needs.append(Requirement(text.partition(";")[0]))
    names = tuple(sorted({canonicalize_name(need.name) for need in needs}))
    return Package(name, distribution.version, _license(distribution), names), needs


def _license(distribution: metadata.Distribution) -> str:
    about = distribution.metadata
    named = about.get("License-Expression") or about.get("License") or ""
    if named and "\n" not in named and len(named) <= 100:
        return named
    classes = [text for text in about.get_all("Classifier", []) if text.startswith("License ::")]
    return classes[0].rpartition(":: ")[2] if classes else ""


def bill(found: dict[str, Package], asked: list[Requirement]) -> dict:
    """CycloneDX 1.6, the same for the same packages."""
    me = f"pkg:generic/nereus@{__version__}"
    python = f"pkg:generic/python@{sys.version.split()[0]}"
    direct = {canonicalize_name(one.name) for one in asked} & set(found)
    components = [
        {
            "type": "library",
            "bom-ref": one.purl,
            "name": one.name,
            "version": one.version,
            "purl": one.purl,
            **({"licenses": [{"license": {"name": one.license}}]} if one.license else {}),
        }
        for one in found.values()
    ]
    interpreter = {"type": "platform", "bom-ref": python, "name": "python", "version": python.rpartition("@")[2]}
    edges = {me: [python, *(found[name].purl for name in sorted(direct))], python: []}
    edges |= {one.purl: [found[name].purl for name in one.needs if name in found] for one in found.values()}
    content = "\n".join(one.purl for one in found.values())
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, me + content)}",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "bom-ref": me, "name": "nereus", "version": __version__, "purl": me}
        },
        "components": [interpreter, *components],
        "dependencies": [{"ref": ref, "dependsOn": needs} for ref, needs in edges.items()],
    }


def write(folder: Path) -> int:
    """Write both files; returns the number of packages."""
    asked = requirements()
    found = packages(asked)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / BILL).write_text(json.dumps(bill(found, asked), indent=1) + "\n")
    # pip-audit -r and pip install -r read this form.
    lines = [f"{one.name}=={one.version}\n" for one in found.values()]
    (folder / VERSIONS).write_text(f"# Nereus {__version__}, Python {sys.version.split()[0]}\n" + "".join(lines))
    return len(found)


def main() -> int:
    """``python -m appliance.sbom FOLDER``."""
    parser = argparse.ArgumentParser(prog="python -m appliance.sbom", description=__doc__)
    parser.add_argument("folder", type=Path, help="where sbom.cdx.json and versions.txt go")
    folder = parser.parse_args().folder
    try:
        count = write(folder)
    except NotInstalled as error:
        print(f"The bill would not be complete: {error}", file=sys.stderr)
        return 1
    print(f"{folder / BILL} and {folder / VERSIONS}: {count} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
