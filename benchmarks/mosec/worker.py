"""A mosec server of one model.

    python worker.py MODEL SHAPE CORE BATCH --port N --path FOLDER

A script of its own: mosec reads the rest of the command line itself, and starts the workers from this file.
"""

from __future__ import annotations

import os
import sys

import mosec
import numpy as np
import onnxruntime

MODEL, SHAPE = sys.argv[1], tuple(int(size) for size in sys.argv[2].split(","))
CORE, BATCH = int(sys.argv[3]), int(sys.argv[4])


class Model(mosec.Worker):
    """FP32 rows as raw bytes in, FP32 outputs as raw bytes out."""

    def __init__(self) -> None:
        super().__init__()
        os.sched_setaffinity(0, {CORE})
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])

    def deserialize(self, data: bytes) -> np.ndarray:
        return np.frombuffer(data, np.float32).reshape(SHAPE)

    def forward(self, data: list[np.ndarray]) -> list[np.ndarray]:
        return list(self._session.run(["y"], {"x": np.stack(data)})[0])

    def serialize(self, data: np.ndarray) -> bytes:
        return data.tobytes()


if __name__ == "__main__":
    # The remaining arguments are mosec's own; its workers are started with the whole line again.
    own = sys.argv[5:]
    whole, sys.argv = sys.argv, [sys.argv[0], *own]
    server = mosec.Server()
    sys.argv = whole
    server.append_worker(Model, num=1, max_batch_size=BATCH, max_wait_time=1)
    server.run()
