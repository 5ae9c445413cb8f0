"""``python -m benchmarks.cluster.ask URL``: what the control box's REST answers, with its own credentials."""

from __future__ import annotations

import json
import sys

import httpx

from workers.settings import Settings
from workers.tls import client_context


def main() -> None:
    """Print the answer."""
    settings = Settings.from_environ()
    token = json.loads((settings.home / "credentials.json").read_text())["api_token"]
    headers = {"Authorization": f"Bearer {token}"}
    verify = client_context(settings, sys.argv[1]) or False
    answer = httpx.get(sys.argv[1], headers=headers, verify=verify, trust_env=False, timeout=30)
    answer.raise_for_status()
    print(answer.text)


if __name__ == "__main__":
    main()
