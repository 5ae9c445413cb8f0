"""The environment of executors: a list of the variables that they need.

They run uploaded models, and so get no others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..identity import SETTINGS

#: NEREUS_HOME marks the process as this appliance's; the rest is the system's, Python's and the libraries'
_KEPT = {
    *SETTINGS,
    "NEREUS_HOME",
    "HOME",
    "LANG",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PATH",
    "TMPDIR",
    "TZ",
    "USER",
    "VIRTUAL_ENV",
}
_PREFIXES = ("CUDA_", "CUDNN_", "FAKETIME", "LC_", "MALLOC_", "MKL_", "NVIDIA_", "OMP_", "OPENBLAS_", "ORT_", "PYTHON")


def of_executor(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The part of ``environ`` that an executor gets: no secrets or addresses."""
    environ = os.environ if environ is None else environ
    kept = {name: value for name, value in environ.items() if name in _KEPT or name.startswith(_PREFIXES)}
    # gpu_index counts in CUDA's PCI order (see gpus.py).
    return kept | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
