"""Lines that ``manage.py up`` prints: what this box does, and where."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from appliance import secrets
from workers.settings import Settings
from workers.trust.control_plane import trust_file

from .roles import BoxRole, Roles, serves_tls

#: seconds between two looks at a member's link
_LOOK_S = 0.3
#: seconds until an operator sees why a member has not joined; a control plane that starts meanwhile is no news
_PATIENCE_S = 5.0
_WHY = {
    "pending": "waits for approval at {url}",
    "down": "cannot reach {url}, and tries again",
    "untrusted": "does not trust {url}",
    "connecting": "has not reached {url} yet",
}


def serves(values: Settings, roles: Roles, elapsed: str) -> str:
    if BoxRole.GATEWAY not in roles:
        return (
            f"Serving after {elapsed}: node {values.node_name}, for the gateways of its cluster.\n"
            f"  Node       {values.node_http.url}/health"
        )
    lines = [
        f"Serving after {elapsed}, from what is on disk.",
        f"  Inference  {values.http.url}/v2  (Open Inference Protocol), gRPC {values.grpc}",
    ]
    if BoxRole.CONTROL in roles:
        lines.append(f"  Keys       {values.home / secrets.CREDENTIALS}")
    if serves_tls(values, roles):
        lines.append(f"  TLS        clients trust {trust_file(values)}")
    return "\n".join(lines)


def ready(values: Settings, roles: Roles, elapsed: str) -> str:
    lines = [f"Ready after {elapsed}."]
    if BoxRole.CONTROL in roles:
        user = secrets.credentials(values.home).get("console_user", secrets.ADMIN)
        lines.append(f"  Console    {values.console.url}/  user {user}")
        if BoxRole.GATEWAY not in roles:
            lines.append(f"  Keys       {values.home / secrets.CREDENTIALS}")
            if values.console.tls:
                lines.append(f"  TLS        clients trust {trust_file(values)}")
    else:
        lines.append(f"  Control    {values.control_url}")
    return "\n".join([*lines, "Ctrl-C stops everything."])


async def report_join(values: Settings, role: BoxRole, say: Callable[[str], None]) -> None:
    kind = str(role)
    who = f"{kind.capitalize()} {values.node_name if role is BoxRole.NODE else values.gateway_names[0]}"
    began, reported = time.monotonic(), ""
    while True:
        state, detail = _link(values.link_status(kind))
        if state == "up":
            say(f"{who} joined {values.control_url}")
            return
        if state and time.monotonic() - began > (0.0 if state == "pending" else _PATIENCE_S):
            why = _WHY.get(state, "is not admitted by {url}").format(url=values.control_url)
            line = f"{who} {why}: {detail}" if detail else f"{who} {why}"
            if line != reported:
                say(line)
                reported = line
        await asyncio.sleep(_LOOK_S)


def _link(path: Path) -> tuple[str, str]:
    try:
        state, _, detail = path.read_text(errors="replace").partition("\n")
    except OSError:
        return "", ""
    return state, " ".join(detail.split())
