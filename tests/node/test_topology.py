"""Cores, nodes, models and quotas, read from files."""

from __future__ import annotations

import os

import pytest

from workers import topology

RASPBERRY = """\
processor\t: 0
BogoMIPS\t: 108.00
Features\t: fp asimd evtstrm crc32 cpuid
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x0
CPU part\t: 0xd08
CPU revision\t: 3

processor\t: 1
CPU implementer\t: 0x41
CPU part\t: 0xd08

Hardware\t: BCM2835
Revision\t: c03112
Model\t\t: Raspberry Pi 4 Model B Rev 1.2
"""
XEON = "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz\n\nprocessor\t: 1\nflags\t\t:\n"


def write(root, **files: str) -> None:
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def test_cores_and_nodes_are_read(tmp_path):
    for processor, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        write(tmp_path, **{f"sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list": siblings + "\n"})
    write(
        tmp_path, **{"sys/devices/system/node/node0/cpulist": "0,2\n", "sys/devices/system/node/node1/cpulist": "1,3\n"}
    )
    write(tmp_path, **{"sys/devices/system/node/node2/cpulist": "\n"})
    found = topology.read((0, 1, 2), tmp_path)
    assert found.cores() == [(0, 2), (1,)]
    assert found.node_of == {0: 0, 1: 1, 2: 0}
    assert topology.physical((0, 1, 2, 3), tmp_path) == 2


@pytest.mark.parametrize("siblings", [None, "", "7", "nonsense"])
def test_a_kernel_that_hides_its_cores_has_one_thread_each(tmp_path, siblings):
    if siblings is not None:
        write(tmp_path, **{"sys/devices/system/cpu/cpu1/topology/thread_siblings_list": siblings})
    found = topology.read((0, 1), tmp_path)
    assert found.cores() == [(0,), (1,)] and found.node_of == {0: 0, 1: 0} and found.quota is None
    assert set(found.model_of.values()) == {os.uname().machine}


def test_processors_are_listed_as_the_kernel_does():
    assert topology.parse("0-3,8\n") == {0, 1, 2, 3, 8} and topology.parse("\n") == set()


def test_models_are_named_on_x86(tmp_path):
    write(tmp_path, **{"proc/cpuinfo": XEON, "sys/devices/cpu_atom/cpus": "1\n"})
    machine = os.uname().machine
    assert topology.models((0, 1), tmp_path) == {0: "Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz", 1: f"{machine} E-core"}


def test_models_are_named_on_arm_where_there_is_no_model_name(tmp_path):
    write(tmp_path, **{"proc/cpuinfo": RASPBERRY, "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "1800000\n"})
    assert topology.models((0, 1), tmp_path) == {0: "ARM Cortex-A72 1.8GHz", 1: "ARM Cortex-A72"}


@pytest.mark.parametrize(
    ("implementer", "part", "name"),
    [
        ("0x41", "0xd0c", "ARM Neoverse-N1"),
        ("0x41", "0xfff", "ARM fff"),
        ("0x61", "0x022", "Apple 022"),
        ("0xc0", "0xac3", "Ampere Ampere-1"),
        ("0x99", "0x001", "ARM-99 001"),
    ],
)
def test_designs_that_are_not_known_differ_all_the_same(tmp_path, implementer, part, name):
    text = f"processor : 0\nCPU implementer : {implementer}\nCPU part : {part}\n"
    write(tmp_path, **{"proc/cpuinfo": text})
    assert topology.models((0,), tmp_path) == {0: name}


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"proc/self/cgroup": "0::/\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2.5),
        (
            {
                "proc/self/cgroup": "0::/system.slice/nereus.service\n",
                "sys/fs/cgroup/system.slice/nereus.service/cpu.max": "max 100000\n",
                "sys/fs/cgroup/system.slice/cpu.max": "400000 100000\n",
            },
            4.0,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/x\n1:cpu,cpuacct:/docker/abc\n0::/\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "150000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            1.5,
        ),
        (
            {
                "proc/self/cgroup": "1:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            None,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "nonsense\n"}, None),
        ({}, None),
    ],
)
def test_quotas_of_control_groups_count(tmp_path, files, quota):
    write(tmp_path, **files)
    assert topology.quota(tmp_path) == quota


def test_this_machine_has_a_topology():
    found = topology.read()
    assert set(found.usable) == os.sched_getaffinity(0) == {p for core in found.cores() for p in core}
    assert all(found.model_of.values())
