"""A model that takes the longer the longer its sequences are, however many rows it has."""

from __future__ import annotations

from pathlib import Path

from tests.executor.harness import save_graph
from workers.protocol.specs import Signature, TensorSpec

SIGNATURE = Signature((TensorSpec("x", "FP32", (-1, -1)),), (TensorSpec("y", "FP32", (-1,)),))


def longer(path: Path) -> Path:
    """Write such a model; ``y`` is the length of the run's sequences that a row was part of."""
    weights = ", ".join(["0.01"] * 48 * 48)
    begin = ", ".join(["0.1"] * 48)
    return save_graph(
        path,
        f"""g (float[b, n] x) => (float[b] y)
        <float[1, 48] begin = {{{begin}}}, float[48, 48] weights = {{{weights}}}, float zero = {{0}}> {{
            length = Shape <start = 1, end = 2> (x)
            turns = Squeeze(length)
            end = Loop <body = body (int64 i, bool go, float[1, 48] h) => (bool on, float[1, 48] next) {{
                on = Identity(go)
                m = MatMul(h, weights)
                next = Tanh(m)
            }}> (turns, "", begin)
            sum = ReduceSum <keepdims = 0> (end)
            nothing = Mul(sum, zero)
            rows = Shape <start = 0, end = 1> (x)
            long = Cast <to = 1> (length)
            each = Expand(long, rows)
            y = Add(each, nothing)
        }}""",
    )
