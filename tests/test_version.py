"""The product's version stands in one place, and everything that shows it agrees."""

import re
import tomllib

from drf_spectacular.generators import SchemaGenerator

import workers
from tests.running import ROOT


def test_the_version_is_the_newest_release_of_the_changelog():
    released = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released[0] == workers.__version__


def test_the_package_takes_its_version_from_the_code():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"] and "version" in project["project"]["dynamic"]
    assert project["tool"]["hatch"]["version"] == {"path": "workers/__init__.py"}


def test_the_rest_schema_says_the_version():
    schema = SchemaGenerator(urlconf="registry.api.urls").get_schema(request=None, public=True)
    assert schema["info"]["version"] == workers.__version__
