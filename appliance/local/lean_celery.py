"""Celery's ``worker`` with the appliance's options alone.

Celery's own command does the same, but loads all of its other commands first, and what an interactive shell for them
needs: a fifth of a worker's start.
"""

from __future__ import annotations

import argparse
import sys

from appliance.celery import app


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="lean_celery", description="A worker of queues.")
    parser.add_argument("-Q", dest="queues", required=True)
    parser.add_argument("-n", dest="hostname", required=True)
    parser.add_argument("--pool", dest="pool_cls", required=True)
    parser.add_argument("-c", dest="concurrency", type=int)
    parser.add_argument("--loglevel", required=True)
    options = vars(parser.parse_args(arguments))
    running = app.Worker(quiet=True, without_gossip=True, without_mingle=True, without_heartbeat=True, **options)
    running.start()
    return running.exitcode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
