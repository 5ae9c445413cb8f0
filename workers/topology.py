"""Processors that this process may use: cores, threads, NUMA nodes and quotas."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import msgspec

_ROOT = Path("/")
_NODES, _CPUS = "sys/devices/system/node", "sys/devices/system/cpu"
#: processors of Intel's efficient cores, where a box has two kinds
_EFFICIENT = "sys/devices/cpu_atom/cpus"
#: names of ARM's designs: implementer and part, as in the kernel's arch/arm64/include/asm/cputype.h
_ARM = {
    0x41: (
        "ARM",
        "d03 Cortex-A53, d04 Cortex-A35, d05 Cortex-A55, d07 Cortex-A57, d08 Cortex-A72, d09 Cortex-A73, "
        "d0a Cortex-A75, d0b Cortex-A76, d0c Neoverse-N1, d0d Cortex-A77, d40 Neoverse-V1, d41 Cortex-A78, "
        "d42 Cortex-A78AE, d44 Cortex-X1, d46 Cortex-A510, d47 Cortex-A710, d48 Cortex-X2, d49 Neoverse-N2, "
        "d4b Cortex-A78C, d4d Cortex-A715, d4e Cortex-X3, d4f Neoverse-V2, d80 Cortex-A520, d81 Cortex-A720, "
        "d82 Cortex-X4, d84 Neoverse-V3, d85 Cortex-X925, d87 Cortex-A725, d8e Neoverse-N3",
    ),
    0x46: ("Fujitsu", "001 A64FX"),
    0x48: ("HiSilicon", "d01 TaiShan-V110"),
    0x4E: ("NVIDIA", "003 Denver, 004 Carmel"),
    0x51: ("Qualcomm", "800 Kryo-2XX-Gold, 801 Kryo-2XX-Silver, 802 Kryo-3XX-Gold, 803 Kryo-3XX-Silver, c00 Falkor"),
    0x61: ("Apple", ""),
    0xC0: ("Ampere", "ac3 Ampere-1, ac4 Ampere-1A"),
}


class Topology(msgspec.Struct, frozen=True):
    """Processors and the cores, nodes, models and quota that they share.

    Processors are hardware threads, as ``sched_getaffinity`` numbers them.
    """

    usable: tuple[int, ...]  # processors that this process may run on
    core_of: Mapping[int, int]  # the physical core of each, named by its lowest processor, usable or not
    node_of: Mapping[int, int]  # the NUMA node of each
    model_of: Mapping[int, str]  # the model of each; boxes with two kinds of cores have two
    quota: float | None = None  # cores' worth of time that control groups grant; None: no limit

    def cores(self) -> list[tuple[int, ...]]:
        by_core: dict[int, list[int]] = {}
        for processor in sorted(self.usable):
            by_core.setdefault(self.core_of[processor], []).append(processor)
        return [tuple(threads) for threads in by_core.values()]


def read(usable: Iterable[int] | None = None, root: Path = _ROOT) -> Topology:
    """This box's topology, or ``usable`` processors'; one node where nothing is known."""
    processors = tuple(sorted(os.sched_getaffinity(0) if usable is None else usable))
    nodes = _nodes(root)
    return Topology(
        usable=processors,
        core_of={processor: _core(processor, root) for processor in processors},
        node_of={processor: nodes.get(processor, 0) for processor in processors},
        model_of=models(processors, root),
        quota=quota(root),
    )


def physical(processors: Collection[int], root: Path = _ROOT) -> int:
    return len({_core(processor, root) for processor in processors})


def _core(processor: int, root: Path) -> int:
    try:
        siblings = parse((root / _CPUS / f"cpu{processor}/topology/thread_siblings_list").read_text())
    except (OSError, ValueError):
        return processor
    # A list that lacks the processor itself describes something else.
    return min(siblings) if processor in siblings else processor


def _nodes(root: Path) -> dict[int, int]:
    node_of = {}
    for folder in (root / _NODES).glob("node[0-9]*"):
        try:
            for processor in parse((folder / "cpulist").read_text()):
                node_of[processor] = int(folder.name.removeprefix("node"))
        except (OSError, ValueError):
            continue
    return node_of


def parse(text: str) -> set[int]:
    """Processors as the kernel lists them, ``0-3,8``; ValueError if it is no list."""
    processors: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        processors |= set(range(int(first), int(last or first) + 1))
    return processors


# --- models -----------------------------------------------------------------------------------------------------------


def models(processors: Iterable[int], root: Path = _ROOT) -> dict[int, str]:
    """The model of each processor, such that equal names are equally fast."""
    described = _described(root)
    try:
        efficient = parse((root / _EFFICIENT).read_text())
    except (OSError, ValueError):
        efficient = set()
    return {
        processor: _model(processor, described.get(processor, {}), root) + " E-core" * (processor in efficient)
        for processor in processors
    }


def _described(root: Path) -> dict[int, dict[str, str]]:
    fields_of: dict[int, dict[str, str]] = {}
    try:
        text = (root / "proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return fields_of
    for block in text.split("\n\n"):
        fields = dict(re.findall(r"^([\w ]+?)\s*:[ \t]*(.*?)\s*$", block, re.MULTILINE))
        if fields.get("processor", "").isdigit():
            fields_of[int(fields["processor"])] = fields
    return fields_of


def _model(processor: int, fields: Mapping[str, str], root: Path) -> str:
    if name := fields.get("model name"):
        return name
    try:
        implementer, part = int(fields["CPU implementer"], 16), int(fields["CPU part"], 16)
    except (KeyError, ValueError):
        return os.uname().machine
    maker, parts = _ARM.get(implementer, (f"ARM-{implementer:02x}", ""))
    names = dict(entry.split(" ") for entry in parts.split(", ") if entry)
    # The same design runs at half the speed in a small board: the clock is part of the name.
    return f"{maker} {names.get(f'{part:03x}', f'{part:03x}')}{_clock(processor, root)}"


def _clock(processor: int, root: Path) -> str:
    try:
        kilohertz = int((root / _CPUS / f"cpu{processor}/cpufreq/cpuinfo_max_freq").read_text())
    except (OSError, ValueError):
        return ""
    return f" {kilohertz / 1e6:.1f}GHz"


# --- control groups ---------------------------------------------------------------------------------------------------


def quota(root: Path = _ROOT) -> float | None:
    """The least number of cores that control groups grant; None: no limit."""
    granted = []
    for folder, versioned in _groups(root):
        try:
            if versioned:
                time, period = (folder / "cpu.max").read_text().split()
            else:
                time = (folder / "cpu.cfs_quota_us").read_text()
                period = (folder / "cpu.cfs_period_us").read_text()
            if time != "max" and int(time) > 0 and int(period) > 0:
                granted.append(int(time) / int(period))
        except (OSError, ValueError):
            continue
    return min(granted, default=None)


def _groups(root: Path) -> list[tuple[Path, bool]]:
    """Folders of this process's control groups and those above; whether version 2."""
    groups = []
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        for mount in ("sys/fs/cgroup",) if not controllers else ("sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"):
            top = root / mount
            folder = top / path.strip("/")
            # In a container the path may be the host's, while its own group is mounted at the top.
            groups += [(one, not controllers) for one in (folder, *folder.parents) if one.is_relative_to(top)]
    return groups
