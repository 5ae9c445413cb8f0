"""An example query that works as it stands, made from an application's signature."""

from __future__ import annotations

import json
import math
import shlex
from typing import Any

#: longer inputs are made by a line of Python instead of being written out
WRITTEN_OUT = 16

ZERO = {"BOOL": False, "BYTES": "text", "FP16": 0.0, "FP32": 0.0, "FP64": 0.0}


def curl(name: str, signature: dict[str, Any], url: str, authorities: str = "") -> str:
    """A shell command that sends one query of one row (any free dimension is 1).

    Args:
        url: the gateway's address.
        authorities: PEM file that clients trust behind https; empty: the system's authorities.
    """
    tensors = []
    short = True
    for tensor in signature.get("inputs") or ():
        shape = [1 if dimension < 1 else dimension for dimension in tensor["shape"]]
        count = math.prod(shape)
        short = short and count <= WRITTEN_OUT
        tensors.append((tensor["name"], tensor["datatype"], shape, count))
    trust = f"--cacert {shlex.quote(authorities)} " if authorities and url.startswith("https://") else ""
    where = shlex.quote(f"{url}/v2/models/{name}/infer")
    send = f'curl -s {trust}{where} \\\n  -H "Authorization: Bearer $API_KEY" \\\n  '
    if short:
        body = {
            "inputs": [
                {"name": n, "datatype": kind, "shape": shape, "data": [ZERO.get(kind, 0)] * count}
                for n, kind, shape, count in tensors
            ]
        }
        return send + "-d " + shlex.quote(json.dumps(body))
    made = ", ".join(
        f'{{"name": {json.dumps(n)}, "datatype": "{kind}", "shape": {shape}, "data": [{_zero(kind)}] * {count}}}'
        for n, kind, shape, count in tensors
    )
    script = f'import json; print(json.dumps({{"inputs": [{made}]}}))'
    return f"python3 -c {shlex.quote(script)} |\n" + send + "-d @-"


def _zero(datatype: str) -> str:
    """An element as Python writes it."""
    return json.dumps(ZERO.get(datatype, 0)).replace("false", "False")
