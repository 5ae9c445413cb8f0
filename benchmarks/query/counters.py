"""What the gateway itself counted, to be held against what its clients did."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Mapping

_ENDED = re.compile(r'^nereus_gateway_queries_total\{application="([^"]+)",outcome="([^"]+)"\} (\S+)$', re.MULTILINE)


def ended(port: int, application: str) -> dict[str, int]:
    """Queries of an application so far, by how they ended.

    Raises:
        OSError: the gateway does not answer.
    """
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {outcome: int(float(count)) for name, outcome, count in _ENDED.findall(text) if name == application}


def since(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """What came on top, without what did not change."""
    return {name: count - before.get(name, 0) for name, count in sorted(after.items()) if count != before.get(name, 0)}
