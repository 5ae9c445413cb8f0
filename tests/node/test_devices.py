"""How a box's cores and GPUs become devices."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from workers.node import devices, gpus
from workers.partition import partition
from workers.settings import SOCKET_PATH_LIMIT, Settings, SettingsError

TWO_PACKAGES = {0: 0, 1: 0, 2: 0, 3: 1, 4: 1, 5: 1}


def _settings(home, **variables) -> Settings:
    return Settings.from_environ({"NEREUS_HOME": str(home), "NEREUS_NODE_NAME": "box", "NEREUS_GPU": "0", **variables})


def _problem(spec: str, cores=(0, 1)) -> str:
    with pytest.raises(SettingsError) as caught:
        partition(spec, cores, dict.fromkeys(cores, 0))
    assert all(problem.startswith("NEREUS_CPU_DEVICES=") for problem in caught.value.problems)
    return "\n".join(caught.value.problems)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("none", []),
        ("2x1", [(0,), (1,)]),
        ("6x1", [(0,), (1,), (2,), (3,), (4,), (5,)]),
        ("2x3", [(0, 1, 2), (3, 4, 5)]),
        ("1x6", [(0, 1, 2, 3, 4, 5)]),
        # no device spans two packages unless it must
        ("2x2", [(0, 1), (3, 4)]),
        ("3x2", [(0, 1), (3, 4), (2, 5)]),
        ("0-1;2,3", [(0, 1), (2, 3)]),
        ("5", [(5,)]),
        ("0,2-3;1", [(0, 2, 3), (1,)]),
    ],
)
def test_cores_are_partitioned(spec, expected):
    assert partition(spec, range(6), TWO_PACKAGES) == expected


@pytest.mark.parametrize(
    ("spec", "cores", "says"),
    [
        ("2x1", (3,), "asks for 2 cores (2 devices with 1 each), but only 1 can be used"),
        ("1x3", (0, 1), "asks for 3 cores"),
        ("0-1;1", (0, 1), "core 1 is in two devices"),
        ("0-4", (0, 1), "core 4 is not among the usable cores 0-1"),
        ("0-999999999", (0, 1), "core 999999999 is not among the usable cores 0-1"),
        ("0;2", (0, 1, 3), "core 2 is not among the usable cores 0-1,3"),
        ("1-0", (0, 1), "the range 1-0 runs backwards"),
    ],
)
def test_cores_that_cannot_be_had_are_named(spec, cores, says):
    assert says in _problem(spec, cores)


def test_every_mistake_of_a_list_is_reported_at_once():
    assert len(_problem("0;0;7").splitlines()) == 2


def test_this_box_is_described_for_its_peers(home):
    first = min(os.sched_getaffinity(0))
    (device,) = devices.find(_settings(home, NEREUS_CPU_DEVICES=str(first)))
    assert (device.id, device.kind, device.cores, device.gpu_index) == ("box/cpu0", "cpu", (first,), None)
    assert device.type.startswith("cpu-") and device.type.endswith("-1c")
    assert device.endpoint == f"unix:{home}/run/box-cpu0.sock"
    assert 0 < device.memory_bytes <= devices.memory_bytes()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_equal_cores_have_equal_types_and_share_the_memory(home):
    first, second = devices.find(_settings(home, NEREUS_CPU_DEVICES="2x1"))
    assert first.type == second.type
    assert first.endpoint != second.endpoint
    # The rest of main memory is for all else on the box.
    share = int(devices.memory_bytes() * 0.9)
    assert first.memory_bytes == second.memory_bytes == share // len(os.sched_getaffinity(0))


def test_a_restricted_process_finds_only_its_cores(home):
    core = max(os.sched_getaffinity(0))
    code = (
        f"import os; os.sched_setaffinity(0, {{{core}}})\n"
        "from workers.node import devices; from workers.settings import Settings\n"
        "print([d.cores for d in devices.find(Settings.from_environ())])\n"
    )
    environ = {"PATH": os.environ["PATH"], "NEREUS_HOME": str(home), "NEREUS_GPU": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"[({core},)]"


def test_a_node_without_a_device_is_an_error(home):
    with pytest.raises(SettingsError, match="leaves this node without a device"):
        devices.find(_settings(home, NEREUS_CPU_DEVICES="none"))


def test_sockets_stay_short_under_deep_homes_and_long_names(tmp_path):
    deep = tmp_path / ("d" * 60)
    (device,) = devices.find(_settings(deep, NEREUS_NODE_NAME="n" * 63, NEREUS_CPU_DEVICES="1x1"))
    (other,) = devices.find(_settings(deep, NEREUS_NODE_NAME="n" * 62 + "m", NEREUS_CPU_DEVICES="1x1"))
    assert len(device.endpoint.removeprefix("unix:")) <= SOCKET_PATH_LIMIT
    assert device.endpoint != other.endpoint


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Intel(R) Xeon(R) Processor @ 2.50GHz", "intel-xeon-2.50ghz"),
        ("AMD EPYC 7763 64-Core Processor", "amd-epyc-7763"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb-hbm3"),
        ("ÄÖ", "unknown"),
        ("", "unknown"),
    ],
)
def test_hardware_names_become_slugs(name, slug):
    assert devices.slug(name) == slug


def test_packages_are_read_from_the_kernel(tmp_path):
    for core, package in ((0, "0"), (1, "1"), (2, "-1")):
        (tmp_path / f"cpu{core}/topology").mkdir(parents=True)
        (tmp_path / f"cpu{core}/topology/physical_package_id").write_text(package + "\n")
    assert devices.packages([0, 1, 2, 3], tmp_path) == {0: 0, 1: 1, 2: 0, 3: 0}


def test_a_memory_limit_counts(tmp_path):
    (tmp_path / "memory.max").write_text("1048576\n")
    assert devices.memory_bytes(tmp_path / "memory.max") == 1048576
    (tmp_path / "memory.max").write_text("max\n")
    assert devices.memory_bytes(tmp_path / "memory.max") > 1048576


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="this box has a GPU")
def test_a_box_without_a_gpu_has_none(home):
    assert gpus.find() == []
    found = devices.find(_settings(home, NEREUS_GPU="1", NEREUS_CPU_DEVICES="1x1"))
    assert [device.kind for device in found] == ["cpu"]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("2,0", [2, 0]),
        ("GPU-b", [1]),
        ("1,7,0", [1]),
        ("-1", []),
        ("0,0", []),
        ("GPU-", []),
    ],
)
def test_hidden_gpus_are_left_out_as_cuda_does(setting, expected):
    present = [gpus.Gpu(i, f"GPU-{'abc'[i]}", "T4", 2**34, "7.5") for i in range(3)]
    assert [gpu.index for gpu in gpus.visible(present, setting)] == expected
