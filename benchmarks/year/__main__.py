"""A year in an hour: an appliance whose clock moves a day every few seconds.

It is a whole appliance under light load. The wall clock is libfaketime's, in every process of the appliance, Redis
included; the monotonic clock is left alone. After a quarter of the days the clock goes back by three hours; after half
of them the appliance boots in 1970, after three quarters in 2040, and each time the clock is corrected while it runs.
Every seventh day a model is uploaded, a key is made, and those of the week before are deleted. Each day the newest plan
must be at every member, a new key accepted and a deleted one refused within 5 s, regular plans must go on, and each
member's certificate must be valid by the control plane's clock; none may be refused, and no query may fail, except
while the appliance itself is stopped. Memory of each process, database, Redis, store and logs are sampled each day and
must not grow from the first sixth of the days on.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import httpx2

from appliance.demo.rest import RestError
from benchmarks.figures import heading
from benchmarks.harness import between

from .story import Year, complaints, page


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print; 1: something does not hold, or the appliance did not run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks year", description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, default=365, choices=range(8, 3651), metavar="8..3650", help="default: 365")
    parser.add_argument("--seconds", type=between(1.0, 600.0), default=10.0, help="for each day (default: 10)")
    parser.add_argument(
        "--within",
        type=between(1.0, 600.0),
        default=5.0,
        help="seconds until plans and keys must be at every member (default: 5)",
    )
    given = parser.parse_args(arguments)
    print(heading("A year in an hour", __doc__), flush=True)
    with tempfile.TemporaryDirectory(prefix="nereus-y-") as folder:
        try:
            year = Year(Path(folder), given.days, given.seconds, given.within)
            found = year.run()
        except (RuntimeError, TimeoutError, OSError, RestError, httpx2.HTTPError) as error:
            print(f"year: {error}", file=sys.stderr)
            return 1
    print(page(found, given.days, given.seconds))
    return 1 if complaints(found, given.days) else 0


if __name__ == "__main__":
    sys.exit(main())
