"""Example queries that work as they stand, for curl and tritonclient."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workers.protocol.datatypes import NUMPY

#: longer inputs are made by a line of Python instead of being written out
WRITTEN_OUT = 16

ZERO = {"BOOL": False, "BYTES": "text", "FP16": 0.0, "FP32": 0.0, "FP64": 0.0}


@dataclass(frozen=True)
class Given:
    """A query's flat elements by input (others: zeros), constraints, variant."""

    elements: Mapping[str, list[Any]] = field(default_factory=dict)
    parameters: Mapping[str, float] = field(default_factory=dict)
    variant: str = ""


ZEROS = Given()


def infer_url(name: str, url: str, variant: str = "") -> str:
    return f"{url}/v2/models/{name}{f'/versions/{variant}' if variant else ''}/infer"


def curl(name: str, signature: dict[str, Any], url: str, authorities: str = "", given: Given = ZEROS) -> str:
    """A shell command that sends one query (any free dimension is 1).

    ``authorities``: PEM file that clients trust behind https; empty: the system's.
    """
    tensors = _tensors(signature)
    short = all(count <= WRITTEN_OUT for *_, count in tensors)
    trust = f"--cacert {shlex.quote(authorities)} " if authorities and url.startswith("https://") else ""
    where = shlex.quote(infer_url(name, url, given.variant))
    send = f'curl -s {trust}{where} \\\n  -H "Authorization: Bearer $API_KEY" \\\n  '
    if short:
        body = {
            "inputs": [
                {
                    "name": n,
                    "datatype": kind,
                    "shape": shape,
                    "data": given.elements.get(n) or [ZERO.get(kind, 0)] * count,
                }
                for n, kind, shape, count in tensors
            ]
        }
        if given.parameters:
            body["parameters"] = dict(given.parameters)
        return send + "-d " + shlex.quote(json.dumps(body))
    made = ", ".join(
        f'{{"name": {json.dumps(n)}, "datatype": "{kind}", "shape": {shape}, "data": [{_zero(kind)}] * {count}}}'
        for n, kind, shape, count in tensors
    )
    more = f', "parameters": {dict(given.parameters)!r}' if given.parameters else ""
    script = f'import json; print(json.dumps({{"inputs": [{made}]{more}}}))'
    return f"python3 -c {shlex.quote(script)} |\n" + send + "-d @-"


def triton(name: str, signature: dict[str, Any], url: str, authorities: str = "", given: Given = ZEROS) -> str:
    """A Python script that sends the same query as :func:`curl`."""
    host = url.partition("://")[2] or url
    tls = url.startswith("https://")
    options = ", ssl=True" if tls else ""
    if tls and authorities:
        options += f", ssl_options={{'ca_certs': {authorities!r}}}"
    lines = [
        "import os",
        "import numpy as np",
        "from tritonclient.http import InferenceServerClient, InferInput",
        "",
        f"client = InferenceServerClient({host!r}{options})",
        "inputs = []",
    ]
    for n, kind, shape, count in _tensors(signature):
        values = given.elements.get(n)
        if values and count <= WRITTEN_OUT:
            array = f"np.array({values!r}, {_numpy(kind)}).reshape({shape})"
        elif kind == "BYTES":
            array = f"np.full({shape}, b'text', object)"
        else:
            array = f"np.zeros({shape}, {_numpy(kind)})"
        lines.append(f"inputs.append(InferInput({n!r}, {shape}, {kind!r}))")
        lines.append(f"inputs[-1].set_data_from_numpy({array})")
    more = f", model_version={given.variant!r}" if given.variant else ""
    more += f", parameters={dict(given.parameters)!r}" if given.parameters else ""
    lines += [
        "headers = {'Authorization': 'Bearer ' + os.environ['API_KEY']}",
        f"answer = client.infer({name!r}, inputs, headers=headers{more})",
        "print(answer.get_response())",
    ]
    return "\n".join(lines)


def _tensors(signature: dict[str, Any]) -> list[tuple[str, str, list[int], int]]:
    found = []
    for tensor in signature.get("inputs") or ():
        shape = [1 if dimension < 1 else dimension for dimension in tensor["shape"]]
        found.append((tensor["name"], tensor["datatype"], shape, math.prod(shape)))
    return found


def _numpy(datatype: str) -> str:
    """numpy's dtype of a datatype; BF16 has none, and tritonclient takes it as FP32."""
    if datatype in NUMPY:
        return f"np.{NUMPY[datatype].name}" if datatype != "BOOL" else "bool"
    return "np.float32" if datatype == "BF16" else "object"


def _zero(datatype: str) -> str:
    return json.dumps(ZERO.get(datatype, 0)).replace("false", "False")
