"""Whole HTTP requests, made beforehand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np


def v2_request(application: str, key: str, x: np.ndarray, name: str = "x", id: str = "") -> bytes:
    """A V2 query of one FP32 input."""
    path = f"/v2/models/{application}/infer"
    tensor = {"name": name, "datatype": "FP32", "shape": list(x.shape), "parameters": {"binary_data_size": x.nbytes}}
    body = {"inputs": [tensor], "parameters": {"binary_data_output": True}} | ({"id": id} if id else {})
    header = json.dumps(body).encode()
    fields = {"Authorization": f"Bearer {key}", "Inference-Header-Content-Length": len(header)}
    return post(path, header + x.tobytes(), fields)


def post(path: str, body: bytes, fields: dict[str, Any]) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
