"""Facts of a box, as JSON on standard output.

The box's Python reads this script on standard input; its arguments are folders and addresses.
"""

import errno
import json
import os
import shutil
import socket
import sys
import time


def free_mb(path):
    """Free space where ``path`` is, or will be."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return shutil.disk_usage(path).free // 1_000_000


def taken(address):
    """Whether another process listens at ``HOST:PORT``."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def main(folders, addresses):
    """Print the facts."""
    with open("/proc/meminfo") as lines:
        memory = next(int(line.split()[1]) for line in lines if line.startswith("MemTotal:"))
    print(
        json.dumps(
            {
                "memory_mb": memory * 1024 // 1_000_000,
                "disk_mb": {folder: free_mb(folder) for folder in folders},
                "taken": [address for address in addresses if taken(address)],
                "gpu": os.path.exists("/dev/nvidiactl"),
                "clock": time.time(),
            }
        )
    )


main(*(filter(None, argument.split(",")) for argument in sys.argv[1:3]))
