"""Register the demo applications: ``python -m appliance.demo.register``.

It uses the REST API, as any model owner would. Accuracies are not declared: the appliance measures them with the
validation sets. Doing it again changes nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import httpx2

from .manifest import DemoApplication, applications
from .rest import RestError, Unreachable, client, expect, pages

Log = Callable[[str], None]
#: seconds that profiling all variants may take
READY_S = 900.0


def register(base_url: str, token: str, log: Log) -> None:
    """Create missing applications, validation sets and variants. Raises RestError.

    ``log`` takes a line for each thing created.
    """
    with client(base_url, token) as rest:
        for application in applications():
            _register(rest, application, log)


def _register(rest: httpx2.Client, application: DemoApplication, log: Log) -> None:
    path = f"/applications/{application.name}/"
    found = expect(rest.get(path), f"GET {path}", 200, 404)
    if found.status_code == 404:
        body = {
            "name": application.name,
            "description": application.description,
            "slo_ms": application.slo_ms,
            "late": "shed",
            "signature": application.signature,
        }
        expect(rest.post("/applications/", json=body), f"registering {application.name}", 201)
        log(f"registered {application.name}")
    variants = {variant["name"] for variant in pages(rest, path + "variants/")}
    missing = [variant for variant in application.variants if variant.name not in variants]
    if not missing:
        return
    # Before the variants: an upload without a declared accuracy is refused where nothing could measure it. Again after
    # an interrupted first start, when only some variants are there: putting the same set twice changes nothing.
    with application.validation_set.open("rb") as file:
        answer = rest.put(path + "validation-set/", files={"file": file}, data={"metric": application.metric})
    expect(answer, f"validation set of {application.name}", 200, 201)
    for variant in missing:
        with variant.path.open("rb") as file:
            answer = rest.post(path + "variants/", files={"file": file}, data={"name": variant.name})
        expect(answer, f"uploading {application.name}/{variant.name}", 201)
        log(f"uploaded {application.name}/{variant.name}")


def wait_ready(base_url: str, token: str, timeout_s: float, poll_s: float = 1.0) -> None:
    """Wait until every demo variant is profiled and measured.

    Raises RestError: one failed, or it took too long.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            waiting = _waiting(base_url, token)
        except Unreachable as error:
            waiting = [str(error)]
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise RestError(f"not ready after {timeout_s:g} s: " + ", ".join(waiting))
        time.sleep(poll_s)


def _waiting(base_url: str, token: str) -> list[str]:
    waiting = []
    with client(base_url, token) as rest:
        for application in applications():
            listed = {one["name"]: one for one in pages(rest, f"/applications/{application.name}/variants/")}
            for variant in application.variants:
                name = f"{application.name}/{variant.name}"
                entry = listed.get(variant.name, {"state": "missing"})
                if entry["state"] == "failed":
                    raise RestError(f"{name} failed: {entry.get('detail') or 'no reason given'}")
                if entry["state"] != "ready":
                    waiting.append(f"{name} ({entry['state']})")
    return waiting


def main() -> int:
    from workers.settings import Settings

    from .load import CredentialsError, credential

    values = Settings.from_environ()
    try:
        token = credential(values.home, "api_token")
        register(values.console.url, token, lambda line: print(line, flush=True))
        wait_ready(values.console.url, token, READY_S)
    except (CredentialsError, RestError) as error:
        print(f"the demo could not be set up: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
