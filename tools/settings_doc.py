"""``python -m tools.settings_doc`` writes docs/settings.md from the settings' own docstrings."""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields
from pathlib import Path

from workers import settings

PATH = Path(__file__).parents[1] / "docs/settings.md"
HEAD = """# Settings

Read from environment variables when a process starts. A value that cannot be used, and a variable with the prefix
that does not exist, prevent startup and are all listed. This page is made by `python -m tools.settings_doc`.

| variable | meaning | default |
|---|---|---|
"""


def render() -> str:
    """A Markdown table of all settings, in the order of their definition."""
    (defined,) = ast.parse(inspect.getsource(settings.Settings)).body
    meanings = {
        field.target.id: " ".join(text.value.value.split()).replace("``", "`")
        for field, text in zip(defined.body, defined.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }
    variables = {field.name: field.metadata["variable"] for field in fields(settings.Settings) if field.metadata}
    return HEAD + "".join(
        f"| `{settings.PREFIX}{one.name}` | {meanings[name]} | {one.shown} |\n" for name, one in variables.items()
    )


if __name__ == "__main__":
    PATH.write_text(render())
