"""``python -m tools.locks`` (``make lock``) writes ``requirements/*.lock``: what ``uv.lock`` has for each role.

They have hashes, and are for pip and any index. A box installs the locks of its roles, and ``cpu`` or ``gpu``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"
#: what brings the library that runs models, by whose name the lock of a role leaves it out
RUNTIME = "onnxruntime"
EXTRAS = ("control", "gateway", "node", "gpu", "simulate")
GROUPS = ("cpu", "dev")
LOCKS = EXTRAS + GROUPS


def requirements(*names: str) -> dict[str, Requirement]:
    """What locks have, by package and version: each with its marker."""
    lines = [line for name in names for line in (FOLDER / f"{name}.lock").read_text().splitlines()]
    found = [Requirement(line.removesuffix("\\")) for line in lines if line[:1].isalnum()]
    return {str(one): one for one in found}


def exported(name: str) -> str:
    """What a lock should be.

    Raises:
        subprocess.CalledProcessError: ``uv.lock`` does not fit ``pyproject.toml``.
    """
    what = ["--extra", name, "--no-dev", "--no-emit-package", RUNTIME] if name in EXTRAS else ["--only-group", name]
    options = ["--locked", "--offline", "--no-emit-project", "--no-header", "--no-annotate", "--quiet", *what]
    uv = Path(sys.executable).with_name("uv")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    done = subprocess.run(
        [uv, "export", *options], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


if __name__ == "__main__":
    for one in LOCKS:
        (FOLDER / f"{one}.lock").write_text(exported(one))
