"""The bill of materials of the installed packages.

It is valid CycloneDX, complete, and the same each time.
"""

from __future__ import annotations

import json
from importlib import metadata

import pytest
from cyclonedx.schema import SchemaVersion
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from appliance import sbom
from workers import __version__


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sbom") / "release"
    sbom.write(folder)
    return folder


@pytest.fixture(scope="module")
def bill(written):
    return json.loads((written / sbom.BILL).read_text())


def test_it_is_valid(written):
    # It takes seconds to load, and all processes of a run load this file.
    from cyclonedx.validation.json import JsonStrictValidator

    trouble = JsonStrictValidator(SchemaVersion.V1_6).validate_str((written / sbom.BILL).read_text())
    assert trouble is None
    sbom.write(written / "again")
    assert (written / "again" / sbom.BILL).read_bytes() == (written / sbom.BILL).read_bytes()


def test_each_requirement_is_in_it_and_all_that_it_needs(bill):
    assert bill["metadata"]["component"]["version"] == __version__
    versions = {one["name"]: one["version"] for one in bill["components"]}
    for need in sbom.requirements():
        assert metadata.version(need.name) == versions[canonicalize_name(need.name)]
    # Through others only: of Celery, of django-axes' framework, of "psycopg[binary]".
    assert {"kombu", "asgiref", "psycopg-binary"} <= set(versions)
    assert not {"pytest", "ruff", "sslyze", "ansible-core"} & set(versions)
    known = {one["bom-ref"] for one in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    assert {one["ref"] for one in bill["dependencies"]} == known
    assert {needed for one in bill["dependencies"] for needed in one["dependsOn"]} <= known


def test_the_list_of_versions_has_the_same_packages(written, bill):
    lines = [line for line in (written / sbom.VERSIONS).read_text().splitlines() if not line.startswith("#")]
    packages = [f"{one['name']}=={one['version']}" for one in bill["components"] if one["type"] == "library"]
    assert lines == packages
    assert all(str(Requirement(line).specifier).startswith("==") for line in lines)


@pytest.mark.parametrize(
    ("line", "reason"),
    [("no-such-package>=1", "no-such-package>=1 of the locks: not installed"), ("Django<2", r"Django<2 .* 5\.")],
)
def test_what_is_not_installed_as_required_is_an_error(line, reason):
    with pytest.raises(sbom.NotInstalled, match=reason):
        sbom.packages([Requirement(line)])
