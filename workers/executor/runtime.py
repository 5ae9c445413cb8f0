"""ONNX Runtime on one device: load a variant, run a batch, read used memory."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnxruntime.capi import _pybind_state as bound

from workers.protocol import shapes
from workers.protocol.datatypes import ONNXRUNTIME_TYPES
from workers.protocol.endings import EXIT_GPU_FAULT
from workers.protocol.run_record import LOADING
from workers.protocol.specs import DeviceInfo, Signature, VariantSpec
from workers.topology import physical

from . import bfloat16, codec, gpu, trial_values
from .gpu import GpuError, GpuMemory
from .padding import Axes, symbols
from .process import memory_limit
from .trial_values import TrialValues
from .watchdog import Watchdog, resident_bytes

#: part of a process's memory that runs may take; the rest is for weights, queries and libraries
ARENA_SHARE = 0.75


class LoadError(Exception):
    """A variant cannot be loaded here; the message says why."""


class RunError(Exception):
    """The model raised, or gave something that its signature does not allow."""


class RunStopped(RunError):
    """The watchdog terminated the run."""


Arrays = Mapping[str, np.ndarray]


class RunnableModel:
    """A loaded variant. ``run`` may be called by one thread at a time.

    Attributes:
        inputs, outputs: symbolic names of their dimensions.
        most_rows: rows that one run can take: 1 where the model's first dimension is fixed at that, or no batch
            dimension; None: any number.
        alone: two queries never share a run, and one query's rows are never divided among runs.
    """

    def __init__(
        self,
        session: ort.InferenceSession,
        signature: Signature,
        load_s: float,
        watchdog: Watchdog,
        survive: Callable[[Exception], None],
    ):
        self.session = session
        self._survive = survive
        self.signature = signature
        self.load_s = load_s
        self._watchdog = watchdog
        self.inputs: Axes = {node.name: symbols(node.shape) for node in session.get_inputs()}
        self.outputs: Axes = {node.name: symbols(node.shape) for node in session.get_outputs()}
        fixed = [node.shape[0] for node in session.get_inputs() if node.shape and isinstance(node.shape[0], int)]
        self.most_rows: int | None = min(fixed, default=None) if signature.batch else 1
        self.alone = not signature.batch
        self._outputs = [spec.name for spec in signature.outputs]
        self._values = TrialValues(signature)
        self._bfloat16 = any(spec.datatype == "BF16" for spec in (*signature.inputs, *signature.outputs))
        self._open_size: int | None = None

    def expect(self, variant: VariantSpec) -> None:
        """Take over whether queries run alone, and values that the variant runs with."""
        self.alone = self.alone or variant.alone
        given = trial_values.unpack(variant.rows, self.signature) if variant.rows else None
        self._use(TrialValues(self.signature, variant.rungs, given))

    def given(self, rows: Arrays) -> None:
        self._use(TrialValues(self.signature, given=rows))

    def _use(self, values: TrialValues) -> None:
        self._values, self._open_size = values, None

    def sample(self, rows: int, size: int = 0) -> dict[str, np.ndarray]:
        """Return valid inputs of ``rows`` rows, see :meth:`.TrialValues.rows`.

        Where the application leaves dimensions open, the first call tries what the model takes: it must come from where
        models run.
        """
        if self._open_size is None:
            self._find_size()
        return self._values.rows(rows, self._open_size, size)

    def _find_size(self) -> None:
        declared = all(spec.most for spec in self.signature.inputs if -1 in spec.shape[1:])
        tried = list(product((1,) if declared else shapes.open_sizes(self.signature), self._values.forms(self.inputs)))
        # The caller's run will name the error.
        self._open_size, self._values = tried[0]
        for open_size, values in tried if len(tried) > 1 else ():
            try:
                self.run(values.rows(1, open_size), 1)
            except RunStopped:
                raise
            except RunError:
                continue
            self._open_size, self._values = open_size, values
            return

    def run(self, inputs: Arrays, max_rows: int) -> tuple[dict[str, np.ndarray], float]:
        """Run all rows, in pieces of at most ``max_rows``.

        Returns:
            outputs by name, rows first, and the seconds that ``session.run`` itself took.

        Raises:
            RunError: the model raised, or an output does not have a row for each row.
            RunStopped: the watchdog terminated the run.
        """
        rows = next(iter(inputs.values())).shape[0]
        if self.most_rows is not None:
            max_rows = min(max_rows, self.most_rows)
        elif self.alone:
            max_rows = rows
        if rows <= max_rows:
            return self._once(inputs, rows)
        pieces, seconds = [], 0.0
        for start in range(0, rows, max_rows):
            piece = {name: array[start : start + max_rows] for name, array in inputs.items()}
            outputs, took = self._once(piece, min(max_rows, rows - start))
            pieces.append(outputs)
            seconds += took
        try:
            return {name: np.concatenate([piece[name] for piece in pieces]) for name in self._outputs}, seconds
        except ValueError as error:
            raise RunError(f"outputs of two pieces do not fit together: {error}") from None

    def _once(self, inputs: Arrays, rows: int) -> tuple[dict[str, np.ndarray], float]:
        options, batch = self._watchdog.options, self.signature.batch
        if not batch:
            inputs = {name: array.reshape(array.shape[1:]) for name, array in inputs.items()}
        started = time.perf_counter()
        try:
            if self._bfloat16:
                values = bfloat16.run(self.session, self._outputs, inputs, options)
            else:
                values = self.session.run(self._outputs, inputs, options)
        except Exception as error:  # onnxruntime raises many types of its own
            self._survive(error)
            text = _one_line(error)
            if out_of_memory(text):
                # Memory that the run was given before it failed must not stay with the arena.
                self._watchdog.shrink_next = True
            raise (RunStopped if self._watchdog.terminating else RunError)(text) from None
        seconds = time.perf_counter() - started
        if not batch:
            values = [np.expand_dims(value, 0) for value in map(codec.as_array, values)]
        outputs = dict(zip(self._outputs, values, strict=True))
        for name, value in outputs.items():
            shape = value.shape
            if not shape or shape[0] != rows:
                raise RunError(f"output {name}: must have a row for each of the batch's {rows}, its shape is {shape}")
        return outputs, seconds


class Runtime:
    """Loads models onto one device.

    Raises (constructor):
        LoadError: a GPU device without a CUDA provider in this installation.
    """

    def __init__(self, device: DeviceInfo, watchdog: Watchdog):
        self.device = device
        self.watchdog = watchdog
        # Threads that share a core share its arithmetic units: one of them computes.
        self.cores = max(1, physical(device.cores)) if device.kind == "cpu" else 1
        _share_arena(memory_limit(device))
        try:
            self._gpu = GpuMemory(device, watchdog.end_process) if device.kind == "cuda" else None
        except GpuError as error:
            raise LoadError(str(error)) from None
        if self._gpu is not None and "CUDAExecutionProvider" not in ort.get_available_providers():
            raise LoadError(f"device {device.id} is a GPU, but this onnxruntime has no CUDAExecutionProvider")

    def load(self, path: str, signature: Signature, variant: int = 0) -> RunnableModel:
        """Open a session for the model file, checked against the signature.

        Args:
            variant: its id, to be noted while it loads.

        Raises:
            LoadError: no such file, not loadable, another signature, or not on the GPU although this device is one.
        """
        record = self.watchdog.record
        record[LOADING] = variant
        try:
            return self._load(path, signature)
        finally:
            record[LOADING] = 0

    def _load(self, path: str, signature: Signature) -> RunnableModel:
        if not Path(path).is_file():
            raise LoadError(f"model file {path} is missing")
        options = ort.SessionOptions()
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.intra_op_num_threads = self.cores
        options.inter_op_num_threads = 1
        # Cores are shared with other processes: a pool that spins between runs would take their time.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        options.add_session_config_entry("session.use_env_allocators", "1")
        # Outside of the arena, so that an unloaded model's memory goes back to the system.
        options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
        options.log_severity_level = 3
        started = time.perf_counter()
        try:
            session = ort.InferenceSession(path, options, providers=self._providers())
        except Exception as error:  # onnxruntime raises many types of its own
            self._survive(error)
            raise LoadError(_one_line(error)) from None
        seconds = time.perf_counter() - started
        # onnxruntime falls back to the CPU silently, which would break every latency that the plan counts on.
        if self._gpu is not None and session.get_providers()[0] != "CUDAExecutionProvider":
            raise LoadError(f"onnxruntime gave {session.get_providers()[0]} instead of CUDAExecutionProvider")
        _check(session, signature)
        return RunnableModel(session, signature, seconds, self.watchdog, self._survive)

    def _survive(self, error: Exception) -> None:
        """End the process where the GPU cannot be used any more: a new one may."""
        if self._gpu is not None and gpu.is_fatal(str(error)):
            print(f"executor: {_one_line(error)}", file=sys.stderr, flush=True)
            self.watchdog.end_process(EXIT_GPU_FAULT)

    def _providers(self) -> list:
        if self._gpu is None:
            return ["CPUExecutionProvider"]
        cuda = {
            "device_id": str(self.device.gpu_index or 0),
            # Powers of two would take twice the memory of the variant's profile.
            "arena_extend_strategy": "kSameAsRequested",
            # An exhaustive search at each new batch size would stall the queries behind it.
            "cudnn_conv_algo_search": "HEURISTIC",
        }
        if self.device.memory_bytes:
            cuda["gpu_mem_limit"] = str(self.device.memory_bytes)
        return [("CUDAExecutionProvider", cuda), "CPUExecutionProvider"]

    def memory_used(self) -> int:
        if self._gpu is not None:
            return self._gpu.used()
        return resident_bytes()


@functools.cache
def _share_arena(limit: int) -> None:
    """Have all sessions, of which one runs at a time, allocate from one arena."""
    place = bound.OrtMemoryInfo("Cpu", bound.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, bound.OrtMemType.DEFAULT)
    # 0 and -1: onnxruntime's defaults. An arena without a bound of its own answers a request that fails by taking, with
    # the next one, all that the process may still have.
    config = {
        "max_mem": int(limit * ARENA_SHARE),
        "max_power_of_two_extend_bytes": 128 * 2**20,
        "arena_extend_strategy": 0,
        "initial_chunk_size_bytes": -1,
        "max_dead_bytes_per_chunk": -1,
    }
    ort.create_and_register_allocator(place, bound.OrtArenaCfg(config))


def out_of_memory(text: str) -> bool:
    lowered = text.lower()
    return "memory" in lowered or "alloc" in lowered


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:500] or type(error).__name__


def _check(session: ort.InferenceSession, signature: Signature) -> None:
    if not bfloat16.possible(signature):
        raise LoadError("BF16 outputs of a model with BYTES inputs cannot be fetched from onnxruntime")
    for side, wanted, nodes in (
        ("input", signature.inputs, session.get_inputs()),
        ("output", signature.outputs, session.get_outputs()),
    ):
        have = {node.name: node for node in nodes}
        for spec in wanted:
            node = have.get(spec.name)
            if node is None:
                raise LoadError(f"{side} {spec.name}: the model has only {', '.join(have) or 'none'}")
            datatype = ONNXRUNTIME_TYPES.get(node.type)
            if datatype != spec.datatype:
                raise LoadError(f"{side} {spec.name}: must be {spec.datatype}, the model has {datatype or node.type}")
        extra = have.keys() - {spec.name for spec in wanted}
        if extra and side == "input":
            raise LoadError(f"input {sorted(extra)[0]}: the application's signature does not have it")
