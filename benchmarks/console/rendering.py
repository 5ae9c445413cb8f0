"""The server's work for a page, measured with a plane's settings.

    python -m benchmarks.console.rendering PATH ...

Prints JSON: for each address the database's queries, processor time by this process' own clock, bytes, and bytes after
gzip. The client is Django's own, signed in as the first account, so that nothing but rendering is counted.
"""

from __future__ import annotations

import gzip
import json
import os
import statistics
import sys
import time

#: requests of each address, after one that fills caches
ROUNDS = 5


def measure(client, path: str) -> dict[str, float]:
    """Figures of one address."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    client.get(path)
    with CaptureQueriesContext(connection) as queries:
        content = b"".join(client.get(path))
    # The next request empties the connection's log.
    count = len(queries)
    took = []
    for _ in range(ROUNDS):
        began = time.process_time()
        status = client.get(path).status_code
        took.append(1e3 * (time.process_time() - began))
    return {
        "status": status,
        "queries": count,
        "cpu_ms": statistics.median(took),
        "bytes": len(content),
        "gzip_bytes": len(gzip.compress(content)),
    }


def main(paths: list[str]) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")
    import django

    django.setup()
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.test import Client

    settings.ALLOWED_HOSTS = ["*"]
    client = Client(HTTP_HOST="127.0.0.1")
    client.force_login(User.objects.order_by("pk").first())
    print(json.dumps({path: measure(client, path) for path in paths}))


if __name__ == "__main__":
    main(sys.argv[1:])
