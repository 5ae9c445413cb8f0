"""Write docs/access.md, who may do what: ``python -m tools.access_doc``."""

from __future__ import annotations

import os
import re
from pathlib import Path

import django
from django.urls import URLResolver, get_resolver

from registry.access import table
from registry.access.roles import AccessRole

PATH = Path(__file__).parents[1] / "docs/access.md"
HEAD = """# Who may do what

Made by `python -m tools.access_doc` from `registry/access/table.py`, which REST, pages, admin site and websockets ask;
what is not in that table is refused.

An account has one of three roles (as a Django group of that name; the highest counts): **viewer** sees everything but
keys, accounts and the audit log; **model owner** also registers and changes applications and uploads variants;
**operator** may do everything. A superuser is an operator who can also change superusers. An account without a role
cannot sign in. Operators make accounts at `/admin/auth/user/`, and API tokens on the console's page *Access*; a token
has a role of its own, and never more than its account's. The tables name the least role that is needed.

"""


def addresses() -> dict[str, str]:
    """Path by name of every named address, as the resolver has them."""
    return dict(_walk(get_resolver().url_patterns, "", ""))


def _walk(patterns, path: str, namespace: str):
    for pattern in patterns:
        here = path + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            inner = f"{namespace}{pattern.namespace}:" if pattern.namespace else namespace
            yield from _walk(pattern.url_patterns, here, inner)
        elif pattern.name:
            yield namespace + pattern.name, "/" + _readable(here)


def _readable(path: str) -> str:
    """A path with its variable parts as ``<name>``."""
    return (
        re.sub(r"\(\?P(<\w+>)[^()]*\)", r"\1", re.sub(r"<\w+:(\w+)>", r"<\1>", path)).replace("^", "").replace("$", "")
    )


def text() -> str:
    """The page."""
    paths = addresses()
    parts = [HEAD, "## REST\n", _entries(table.REST, paths)]
    lines = [
        f"- `{name}` of `{paths[address]}` needs {role.label}, unless it stays as it is."
        for address, fields in table.FIELDS.items()
        for name, role in fields.items()
    ]
    parts += ["\n".join(lines) + "\n", "## Pages\n", _entries(table.PAGES, paths), "## Admin site\n"]
    rows = [(f"`{paths.get(name, name)}`", role.label, table.NOTES.get(name, "")) for name, role in _site(paths)]
    parts.append(_rows(("address", "role", "remark"), rows))
    models = [(f"`/admin/{name.replace('.', '/')}/`", role.label) for name, role in table.MODELS.items()]
    parts.append(_rows(("model", "see and change"), models))
    parts.append("## Websockets\n")
    sockets = [
        (f"`/{path}`", message, role.label)
        for path, messages in table.BROWSER_SOCKETS.items()
        for message, role in messages.items()
    ]
    sockets += [
        (f"`/{path}`", "all messages", f"a {kind}'s credential, or a join token")
        for path, kind in table.MEMBER_ADDRESSES.items()
        if path.startswith("ws/")
    ]
    parts.append(_rows(("websocket", "message", "role"), sockets))
    return "\n".join(parts)


def _site(paths: dict[str, str]):
    return [(name, role) for name, role in table.ADMIN_SITE.items() if name in paths]


def _entries(entries: dict[str, dict[str, AccessRole]], paths: dict[str, str]) -> str:
    rows = []
    for name, methods in entries.items():
        member = table.MEMBER_ADDRESSES.get(name)
        for method, role in methods.items():
            who = f"{role.label}, or an {member}" if member else role.label
            rows.append((f"`{paths[name]}`", method, who, table.NOTES.get(name, "")))
    return _rows(("address", "method", "role", "remark"), rows)


def _rows(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")
    django.setup()
    PATH.write_text(text())
