"""How a page of figures begins: what was measured, and on what."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def heading(title: str, about: str) -> str:
    """A title, the text of a docstring, and the machine."""
    cores = len(os.sched_getaffinity(0))
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    processor = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "?")
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    machine = f"{cores} cores of {processor}, Python {platform.python_version()}, load before: {load}."
    return f"# {title}\n\n{text(about)}\n\n{machine}\n"


def text(about: str) -> str:
    """A docstring's paragraphs, each in one line."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in about.strip().split("\n\n"))
