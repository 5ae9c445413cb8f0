"""Commands of ``./nereus``: their requests, and the lines that they print."""

from __future__ import annotations

import contextlib
import json
import math
from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2

from appliance.demo.rest import RestError, expect, pages

#: seconds that an upload's inspection may take
UPLOAD_S = 600


@dataclass(frozen=True)
class Shown:
    """``answer``: as REST gave it. ``lines``: the same for people."""

    answer: Any
    lines: Sequence[str]


def _get(rest: httpx2.Client, path: str) -> Any:
    return expect(rest.get(path), f"GET {path}", 200).json()


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    cells = [list(head), *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def status(rest: httpx2.Client, options: Namespace) -> Shown:
    newest = _get(rest, "/plans/")["results"][:1]
    repairs, tasks = pages(rest, "/repairs/"), pages(rest, "/tasks/")
    lines = ["No plan yet."]
    for plan in newest:
        lines = [
            f"Plan {plan['version']}: serves {plan['served']:.1f} of {plan['demand']:.1f} items/s "
            f"with {plan['accuracy']:.1f}% of the best accuracy (stack {plan['stack']})."
        ]
    needing = [repair for repair in repairs if not repair["ignored_by"]]
    lines += [f"Needs you: {one['title']} {one['effect']} {one['action']['text']}" for one in needing]
    lines += [] if needing else ["No repair needs you."]
    going = [task for task in tasks if task["until"] is None]
    lines += [f"Goes on: {one['kind']} {one['title']}, {one['state']}: {one['detail']}" for one in going]
    return Shown({"plan": newest[0] if newest else None, "repairs": repairs, "tasks": tasks}, lines)


def applications(rest: httpx2.Client, options: Namespace) -> Shown:
    found, rows = pages(rest, "/applications/"), []
    for application in found:
        variants = application["variants"] = pages(rest, f"/applications/{application['name']}/variants/")
        shown = ", ".join(f"{one['name']} ({_percent(one['accuracy'])}, {one['state']})" for one in variants)
        rows.append((application["name"], f"{application['slo_ms']:g} ms", application["state"], shown or "none"))
    return Shown(found, _table(("APPLICATION", "SLO", "STATE", "VARIANTS"), rows))


def _percent(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.2f}%"


def upload(rest: httpx2.Client, options: Namespace) -> Shown:
    fields = {"name": options.name or options.file.stem}
    if options.accuracy is not None:
        fields["accuracy"] = options.accuracy
    with contextlib.ExitStack() as stack:
        paths = {"file": options.file} | ({"sample": options.sample} if options.sample else {})
        answer = rest.post(
            f"/applications/{options.application}/variants/",
            data=fields,
            files={name: (path.name, stack.enter_context(path.open("rb"))) for name, path in paths.items()},
            timeout=UPLOAD_S,
        )
    found = expect(answer, "upload", 201).json()
    return Shown(found, [f"{options.application}/{found['name']} was accepted; it is {found['state']}."])


def slo(rest: httpx2.Client, options: Namespace) -> Shown:
    path = f"/applications/{options.application}/"
    looked = expect(rest.get(f"{path}slo/", params={"ms": options.ms}), "slo", 200).json()
    if options.look:
        return Shown(looked, looked["consequences"])
    found = expect(rest.patch(path, json={"slo_ms": options.ms}), "slo", 200).json()
    return Shown(found, [f"The SLO of {found['name']} is {found['slo_ms']:g} ms now.", *looked["consequences"]])


def plan(rest: httpx2.Client, options: Namespace) -> Shown:
    """Explain the plan; or ask for a new one, or for another stack."""
    if options.stack is not None:
        found = expect(rest.patch("/control/", json={"stack": options.stack}), "stack", 200).json()
        return Shown(found, [f"The next plan is made by the stack {found['stack']}."])
    if options.now:
        found = expect(rest.post("/plan/"), "plan", 202).json()
        return Shown(found, ["A plan was requested." if found["requested"] else "A plan waits already."])
    version = options.version or _get(rest, "/plan/")["version"]
    found = _get(rest, f"/plans/{version}/trail/")
    lines = [f"Plan {version}: {found['sentence']}"]
    nothing = "nothing is missing" if found["demand"] else "not known"
    lines += [f"Limit: {reason}" for reason in found["limit"] or [nothing]]
    lines += [price["sentence"] for price in found["prices"]]
    for move in found["moves"]:
        changes = [f"+ {name}" for name in move["loads"]] + [f"- {name}" for name in move["unloads"]]
        lines.append(f"{move['device']} ({move['change']}): {', '.join(changes) or 'nothing loaded'}")
    return Shown(found, lines)


def nodes(rest: httpx2.Client, options: Namespace) -> Shown:
    found, devices = pages(rest, "/nodes/"), pages(rest, "/devices/")
    rows = []
    for node in found:
        mine = [device for device in devices if device["node"] == node["name"]]
        node["devices"] = mine
        up = sum(device["state"] == "up" for device in mine)
        there = "connected" if node["connected"] else node["last_words"] or "not connected"
        cordoned = "drained" if node["drained"] else "cordoned" if node["cordoned_at"] else "-"
        rows.append((node["name"], node["state"], there, cordoned, f"{up} of {len(mine)}", node["release"] or "-"))
    return Shown(found, _table(("NODE", "STATE", "LINK", "CORDON", "DEVICES UP", "RELEASE"), rows))


def cordon(rest: httpx2.Client, options: Namespace) -> Shown:
    path = f"/nodes/{options.node}/cordon/"
    if options.end:
        found = expect(rest.delete(path), "cordon --end", 200).json()
        return Shown(found, [f"Plans use the devices of {options.node} again."])
    found = expect(rest.post(path, json={"force": True} if options.force else {}), "cordon", 200).json()
    return Shown(found, [f"Plans leave the devices of {options.node} out until `nereus cordon {options.node} --end`."])


def join(rest: httpx2.Client, options: Namespace) -> Shown:
    """The line by which another box joins, last, so that scripts can read it."""
    body = {"role": options.role, "minutes": options.minutes, "control": options.control}
    found = expect(rest.post("/join-commands/", json=body), "join", 201).json()
    warning = [f"Warning: {found['warning']}"] if found["warning"] else []
    return Shown(found, [*found["remarks"], *warning, found["command"]])


def try_query(rest: httpx2.Client, options: Namespace) -> Shown:
    given = {}
    for text in options.values:
        name, equals, values = text.partition("=")
        if not equals:
            raise ValueError(f"{text}: must be NAME=1,2,3")
        given[name] = values
    signature = _get(rest, f"/applications/{options.application}/")["signature"]
    unknown = sorted(set(given) - {tensor["name"] for tensor in signature["inputs"]})
    if unknown:
        raise ValueError(f"{unknown[0]}: {options.application} has no such input")
    inputs = [_input(tensor, given.get(tensor["name"])) for tensor in signature["inputs"]]
    path = f"/applications/{options.application}/try/"
    found = expect(rest.post(path, json={"inputs": inputs}), "try", 200).json()
    if found["error"]:
        return Shown(found, [f"Refused with {found['status']}: {found['error']}"])
    answer = found["parameters"]
    lines = [f"{answer['variant']} ({answer['accuracy']:g}%) on {answer['device']} in {found['took_ms']} ms"]
    for output in found["outputs"]:
        best = [
            f"{one['index']}: {one['value']:g}" for row in output["top"][:1] for one in row if one["value"] is not None
        ]
        lines.append(
            f"{output['name']} {output['datatype']} {output['shape']}: {', '.join(best) or output['data'][:10]}"
        )
    return Shown(found, lines)


def _input(tensor: dict[str, Any], values: str | None) -> dict[str, Any]:
    """An input of one row, with open dimensions of 1."""
    shape = [1 if size < 0 else size for size in tensor["shape"]]
    datatype = tensor["datatype"]
    if values is None:
        zero: Any = {"BOOL": False, "BYTES": ""}.get(datatype, 0)
        data = [zero] * math.prod(shape)
    elif datatype == "BYTES":
        data = values.split(",")
    else:
        data = [word.strip().lower() == "true" if datatype == "BOOL" else float(word) for word in values.split(",")]
        data = [int(one) if "INT" in datatype else one for one in data]
    return {"name": tensor["name"], "datatype": datatype, "shape": shape, "data": data}


def key(rest: httpx2.Client, options: Namespace) -> Shown:
    fields = {"name": options.name, "applications": options.applications, "rate": options.rate}
    body = {name: value for name, value in {**fields, "expires": options.expires}.items() if value is not None}
    found = expect(rest.post("/api-keys/", json=body), "key", 201).json()
    return Shown(found, [found["key"]])


def rest(rest: httpx2.Client, options: Namespace) -> Shown:
    """Send any request; of a list, all pages come."""
    path = f"/{options.path.lstrip('/')}"
    try:
        body = json.loads(options.data) if options.data else None
    except ValueError as error:
        raise ValueError(f"--data: must be JSON: {error}") from error
    answer = rest.request(options.method, path, json=body)
    if answer.status_code == 404 and options.missing_ok:
        return Shown(None, ["null"])
    if not answer.is_success:
        raise RestError(f"{options.method} {options.path}: HTTP {answer.status_code}: {answer.text[:500]}")
    found = answer.json() if answer.content else None
    if isinstance(found, dict) and "next" in found and "results" in found:
        found = pages(rest, path)
    return Shown(found, [json.dumps(found)])
