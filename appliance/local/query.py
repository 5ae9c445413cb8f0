"""One query of zeros for each application, the whole way to a device."""

from __future__ import annotations

import json
import math

import httpx2

from workers.protocol.datatypes import ITEM_BYTES
from workers.trust.control_plane import unverified
from workers.v2.http import HEADER_LENGTH

#: bytes of an element that is an empty string: its length, as the binary data of V2 has it
_EMPTY_STRING = 4


async def ask_all(url: str, key: str, timeout_s: float) -> tuple[list[str], list[str]]:
    """Applications that answered a query, and why others did not.

    Raises httpx2.HTTPError: the gateway does not answer.
    """
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(base_url=url, headers=headers, verify=unverified(), timeout=timeout_s) as client:
        index = await client.post("/v2/repository/index", json={})
        if index.status_code != httpx2.codes.OK:
            return [], [_why("index", index)]
        answered, silent = [], []
        for model in index.json():
            name = model["name"]
            if model.get("state") != "READY":
                silent.append(f"{name}: {model.get('reason') or 'not ready'}")
                continue
            why = await _ask(client, name)
            if why is None:
                answered.append(name)
            else:
                silent.append(why)
        return sorted(set(answered)), silent


async def _ask(client: httpx2.AsyncClient, name: str) -> str | None:
    described = await client.get(f"/v2/models/{name}")
    if described.status_code != httpx2.codes.OK:
        return _why(name, described)
    inputs, data = [], bytearray()
    for tensor in described.json()["inputs"]:
        shape = [1 if size < 0 else size for size in tensor["shape"]]
        zeros = bytes(math.prod(shape) * ITEM_BYTES.get(tensor["datatype"], _EMPTY_STRING))
        parameters = {"binary_data_size": len(zeros)}
        inputs.append(
            {"name": tensor["name"], "datatype": tensor["datatype"], "shape": shape, "parameters": parameters}
        )
        data += zeros
    text = json.dumps({"inputs": inputs}).encode()
    answer = await client.post(
        f"/v2/models/{name}/infer",
        content=text + bytes(data),
        headers={HEADER_LENGTH: str(len(text)), "Content-Type": "application/octet-stream"},
    )
    return None if answer.status_code == httpx2.codes.OK else _why(name, answer)


def _why(name: str, answer: httpx2.Response) -> str:
    return f"{name}: HTTP {answer.status_code}: {answer.text[:300]}"
