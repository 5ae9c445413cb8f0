"""Try an application: one query to a gateway, as a client would send it."""

from __future__ import annotations

import base64
import binascii
import heapq
import json
import ssl
import threading
import time
from typing import Any
from urllib.parse import urlsplit

import httpx2
from django.conf import settings
from django.http.request import validate_host

from registry import console_key
from registry.errors import Busy, InputFault, InvalidInput
from registry.examples import Given, curl, infer_url, triton
from registry.models import Application, Gateway
from workers.trust.control_plane import trust_file
from workers.v2.http import HEADER_LENGTH

#: seconds that an answer may take
TIMEOUT_S = 30.0
#: queries under way at once in this process, since each holds a thread
AT_ONCE = 4
#: seconds until gateways know a key that was just made
KEY_KNOWN_S = 10.0
#: bytes of an answer that are read
MAX_ANSWER = 8 * 2**20
#: elements of an output that are passed on, and rows and classes that are ranked
MOST_ELEMENTS, RANKED_ROWS, RANKED = 256, 4, 5

_slots = threading.BoundedSemaphore(AT_ONCE)


def gateway_url() -> str:
    """Return a gateway's address for clients.

    It is that of an approved, connected gateway, else of this appliance's own. A gateway names its address itself: it
    becomes an example, which operators run with a key in it, only where it is on this box or on a host of
    ``NEREUS_ALLOWED_HOSTS``.
    """
    for gateway in Gateway.objects.filter(state=Gateway.State.APPROVED).exclude(channel="").exclude(address=""):
        url = gateway.address if "://" in gateway.address else f"http://{gateway.address}"
        try:
            host, scheme = urlsplit(url).hostname, urlsplit(url).scheme
        except ValueError:
            continue
        if scheme in ("http", "https") and host and validate_host(host, settings.ALLOWED_HOSTS):
            return url
    return settings.NEREUS.http.url


def authorities() -> str:
    """The file that clients of an own certificate trust; empty: the system's."""
    own = settings.NEREUS.tls_used and settings.NEREUS.tls_cert is None
    return str(trust_file(settings.NEREUS)) if own else ""


def try_query(application: Application, query: dict[str, Any]) -> dict[str, Any]:
    """Send one query, and return its answer or the gateway's refusal.

    The same query comes with it as ``curl`` and ``tritonclient``. Raises InvalidInput: ``base64`` is none; Busy: too
    many such queries are under way, or no gateway can be reached.
    """
    parameters = {key: value for key, value in (query.get("parameters") or {}).items() if value is not None}
    variant = parameters.pop("variant", "")
    head, data = _encoded(query["inputs"], parameters)
    url = gateway_url()
    if not _slots.acquire(blocking=False):
        raise Busy(f"{AT_ONCE} such queries are under way, the most at once", 1)
    try:
        status, took_ms, body = _send(infer_url(application.name, url, variant), head, data)
    finally:
        _slots.release()
    answer = _read(body)
    signature = {"inputs": [{key: one[key] for key in ("name", "datatype", "shape")} for one in query["inputs"]]}
    elements = {one["name"]: _flat(one["data"]) for one in query["inputs"] if one.get("data") is not None}
    given = Given(elements, parameters, variant)
    same = (application.name, signature, url, authorities(), given)
    return {
        "status": status,
        "took_ms": round(took_ms, 1),
        "gateway": url,
        "error": "" if status == httpx2.codes.OK else str(answer.get("error") or f"the gateway answered {status}"),
        "parameters": answer.get("parameters") or {},
        "outputs": [_shown(output) for output in answer.get("outputs") or ()],
        "curl": curl(*same),
        "tritonclient": triton(*same),
    }


def _encoded(given: list[dict[str, Any]], parameters: dict[str, Any]) -> tuple[bytes, bytes]:
    inputs, data, faults = [], b"", []
    for index, one in enumerate(given):
        tensor = {key: one[key] for key in ("name", "datatype", "shape")}
        if one.get("base64") is None:
            tensor["data"] = one.get("data") or []
        else:
            try:
                raw = base64.b64decode(one["base64"], validate=True)
            except (binascii.Error, ValueError):
                faults.append(InputFault(f"inputs[{index}].base64", "is not base64"))
                continue
            tensor["parameters"] = {"binary_data_size": len(raw)}
            data += raw
        inputs.append(tensor)
    if faults:
        raise InvalidInput(faults)
    # The answer as JSON, whatever the inputs are.
    head = {"inputs": inputs, "parameters": {**parameters, "binary_data_output": False}}
    return json.dumps(head).encode(), data


def _send(url: str, head: bytes, data: bytes) -> tuple[int, float, bytes]:
    key, new = console_key.ready()
    headers = {
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/octet-stream",
        HEADER_LENGTH: str(len(head)),
    }
    give_up = time.monotonic() + KEY_KNOWN_S
    try:
        with httpx2.Client(timeout=TIMEOUT_S, trust_env=False, verify=_trust(url), follow_redirects=False) as client:
            while True:
                began = time.monotonic()
                with client.stream("POST", url, content=head + data, headers=headers) as response:
                    body = _bounded(response)
                took_ms = (time.monotonic() - began) * 1e3
                if response.status_code != httpx2.codes.UNAUTHORIZED or not new or time.monotonic() > give_up:
                    return response.status_code, took_ms, body
                time.sleep(0.2)
    except (httpx2.HTTPError, OSError) as error:
        raise Busy(
            f"the gateway at {url.partition('/v2/')[0]} cannot be asked: {error or type(error).__name__}", 5
        ) from None


def _bounded(response: httpx2.Response) -> bytes:
    body = b""
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > MAX_ANSWER:
            raise Busy(f"the answer is larger than {MAX_ANSWER} bytes; send the query to the gateway itself", 5)
    return body


def _trust(url: str) -> ssl.SSLContext | bool:
    if not url.startswith("https://"):
        return False
    context = ssl.create_default_context(cafile=settings.NEREUS.ca_file)
    own = trust_file(settings.NEREUS)
    if own is not None:
        context.load_verify_locations(own)
    return context


def _read(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _flat(data: Any) -> list[Any]:
    if not isinstance(data, list):
        return [data]
    return [element for one in data for element in _flat(one)] if any(isinstance(one, list) for one in data) else data


def _shown(output: dict[str, Any]) -> dict[str, Any]:
    shape, data = output.get("shape") or [], output.get("data") or []
    rows = shape[0] if len(shape) > 1 else 1
    columns = len(data) // rows if rows else 0
    ranked = []
    numbers = output.get("datatype") not in ("BYTES", "BOOL")
    if numbers and columns > 1:
        for row in range(min(rows, RANKED_ROWS)):
            values = data[row * columns : (row + 1) * columns]
            best = heapq.nlargest(RANKED, range(columns), key=lambda index: (values[index] is not None, values[index]))
            ranked.append([{"index": index, "value": values[index]} for index in best])
    return {
        "name": output.get("name", ""),
        "datatype": output.get("datatype", ""),
        "shape": shape,
        "elements": len(data),
        "data": data[:MOST_ELEMENTS],
        "top": ranked,
    }
