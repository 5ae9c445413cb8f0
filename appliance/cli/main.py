"""Arguments of ``./nereus``, and where its requests go."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2

from appliance.cli import acts
from appliance.cli.acts import Shown
from appliance.demo.rest import RestError, client
from appliance.secrets import CREDENTIALS, credentials
from workers.settings import Settings, SettingsError


def _url(text: str) -> str:
    # An empty one, such as of a variable that is not set, must not mean this box's own console.
    if not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"must begin with http:// or https://, not {text!r}")
    return text


def _options(**settings) -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False, **settings)
    options.add_argument("--url", type=_url, help="the console; default: this box's own")
    options.add_argument("--token-file", type=Path, help="file with an API token; default: this box's own token")
    options.add_argument("--ca-file", type=Path, help="authority that the console's certificate is from (PEM)")
    options.add_argument("--json", action="store_true", help="print the REST answer")
    return options


def parser() -> argparse.ArgumentParser:
    """The commands, each with its function in :mod:`.acts` as ``act``."""
    text = "The most common actions of an operator, by REST. 'nereus up' starts the appliance: 'nereus up --help'."
    top = argparse.ArgumentParser(prog="nereus", description=text, parents=[_options()])
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    # Suppressed, as their defaults would take the place of what stands before the command.
    behind = _options(argument_default=argparse.SUPPRESS)

    def add(name: str, act, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text, parents=[behind])
        command.set_defaults(act=act)
        return command

    add("status", acts.status, "the plan in force, open repairs and running tasks")
    add("applications", acts.applications, "all applications with their variants")
    upload = add("upload", acts.upload, "upload a variant")
    upload.add_argument("application")
    upload.add_argument("file", type=Path, help="an ONNX model")
    upload.add_argument("--name", default="", help="default: the file's")
    upload.add_argument(
        "--accuracy", help="percent (91.5; up to 1 with the sign: 0.9%%); default: measured on the validation set"
    )
    upload.add_argument("--sample", type=Path, help="rows to try it with: .npz, or a query's JSON")
    slo = add("slo", acts.slo, "change an application's SLO; with --look, only show what that would mean")
    slo.add_argument("application")
    slo.add_argument("ms", type=float)
    slo.add_argument("--look", action="store_true", help="change nothing")
    plan = add("plan", acts.plan, "why the plan is as it is")
    plan.add_argument("version", type=int, nargs="?", help="default: the one in force")
    plan.add_argument("--now", action="store_true", help="ask for a new plan instead")
    plan.add_argument("--stack", help="serve with another stack instead; empty: the default")
    add("nodes", acts.nodes, "nodes with their devices")
    cordon = add("cordon", acts.cordon, "have plans leave a node's devices out")
    cordon.add_argument("node")
    cordon.add_argument("--end", action="store_true", help="use them again instead")
    cordon.add_argument("--force", action="store_true", help="also where it alone serves an application")
    join = add("join", acts.join, "the line by which another box joins; it works once")
    join.add_argument("role", choices=["node", "gateway"])
    join.add_argument("--minutes", type=int, default=60, help="until it expires (default: 60)")
    join.add_argument("--control", default="", help="this console's URL for that box")
    tried = add("try", acts.try_query, "send one query, zeros unless values are given")
    tried.add_argument("application")
    tried.add_argument("values", nargs="*", help="NAME=1,2,3 for each input")
    key = add("key", acts.key, "make an API key; it is shown once")
    key.add_argument("name")
    key.add_argument("--applications", nargs="+", help="those that it reaches; default: all")
    key.add_argument("--rate", type=float, help="queries/s at most")
    key.add_argument("--expires", help="UTC, such as 2027-01-31T00:00Z")
    sent = add("rest", acts.rest, "send one request to the REST API, such as: rest POST nodes/box2/cordon/")
    sent.add_argument("method", choices=["GET", "POST", "PATCH", "PUT", "DELETE"])
    sent.add_argument("path", help="below /api/v1/, such as nodes/")
    sent.add_argument("--data", default="", metavar="JSON", help="the body")
    sent.add_argument("--missing-ok", action="store_true", help="print null where nothing has that name (404)")
    return top


def main(arguments: list[str]) -> int:
    """The exit status: 0 done, 1 refused, not reached, or the answer not printed."""
    options = parser().parse_args(arguments)
    try:
        with _connected(options) as rest:
            shown: Shown = options.act(rest, options)
    except (RestError, SettingsError, OSError, ValueError) as error:
        print(f"nereus: {error}", file=sys.stderr)
        return 1
    try:
        print(json.dumps(shown.answer, indent=2) if options.json else "\n".join(shown.lines), flush=True)
    except OSError as error:
        # Python would write the rest again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"nereus: {error}", file=sys.stderr)
        return 1
    return 0


@contextlib.contextmanager
def _connected(options: argparse.Namespace) -> Iterator[httpx2.Client]:
    settings = Settings.from_environ()
    url = options.url or settings.console.url
    if options.token_file is not None:
        token = options.token_file.read_text().strip()
    elif options.url:
        raise ValueError("--url: needs --token-file; this box's own token is for its own console")
    else:
        token = credentials(settings.home).get("api_token", "")
    if not token:
        raise ValueError(f"{settings.home / CREDENTIALS} has no API token; name a console by --url and --token-file")
    trust = ssl.create_default_context(cafile=options.ca_file) if options.ca_file is not None else None
    with client(url, token, trust) as rest:
        yield rest
