"""``manage.py settings_doc``: write docs/settings.md.

Its text comes from the settings' own docstrings.
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

from django.conf import settings
from django.core.management.base import BaseCommand

from workers import settings as module

PATH = Path("docs") / "settings.md"


def render() -> str:
    """A Markdown table of all settings, in the order of their definition."""
    defined = next(
        node
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.ClassDef) and node.name == "Settings"
    )
    defaults = module.Settings.from_environ({})
    rows = []
    for field, text in zip(defined.body, defined.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(text, ast.Expr):
            continue
        docstring = " ".join(text.value.value.split())
        named = re.search(r"NEREUS_[A-Z_]+", docstring)
        if named is None:
            continue
        name = named[0]
        meaning = re.sub(rf"\s*\(``{name}``,?\s*([^)]*)\)", lambda m: f" ({m[1]})" if m[1] else "", docstring)
        default = _default(name, getattr(defaults, field.target.id))
        rows.append(f"| `{name}` | {meaning.replace('``', '`')} | {default} |")
    return (
        "# Settings\n\nRead from environment variables when a process starts. A value that cannot be used, and a "
        "variable with the prefix\nthat does not exist, stop the start with a list of what is wrong. This page is made "
        "by `manage.py settings_doc`.\n\n"
        "| variable | meaning | default |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def _default(name: str, value: object) -> str:
    if name == "NEREUS_HOME":
        return "`.nereus`"
    if name == "NEREUS_NODE_NAME":
        return "the host name"
    if name in ("NEREUS_CORE", "NEREUS_EXECUTORS"):
        return "`auto`"
    if isinstance(value, bool):
        return "`1`" if value else "`0`"
    if name.endswith("_MB_S"):
        return f"`{value / 1e6:g}`"
    if name.endswith("_MB"):
        return f"`{value // (1024 * 1024)}`"
    if value in ("", (), None, {}):
        return ""
    if isinstance(value, tuple):
        return f"`{','.join(value)}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


class Command(BaseCommand):
    help = "Write docs/settings.md."

    def handle(self, *args, **options) -> None:
        (settings.BASE_DIR / PATH).write_text(render())
