"""A scanner's objections to a server's TLS."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

#: the scanner's own environment (Makefile), as it holds cryptography back
PYTHON = Path(sys.prefix) / "scan" / "bin" / "python"


def objections(ports: list[int], authority: Path) -> list[dict[str, str]]:
    """A scanner's objections for each port, by subject, by Mozilla's intermediate configuration."""
    assert PYTHON.exists(), "the scanner is not installed: make test does it"
    command = [str(PYTHON), "-I", __file__, str(authority), *map(str, ports)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def scan(ports: list[int], authority: Path) -> list[dict[str, str]]:
    from sslyze import (
        CertificateInfoExtraArgument,
        ScanCommandsExtraArguments,
        Scanner,
        ServerNetworkLocation,
        ServerScanRequest,
    )
    from sslyze.mozilla_tls_profile.tls_config_checker import (
        MozillaTlsConfiguration,
        ServerNotCompliantWithTlsConfiguration,
        TlsConfigurationEnum,
        check_server_against_tls_configuration,
    )

    extra = ScanCommandsExtraArguments(certificate_info=CertificateInfoExtraArgument(custom_ca_file=authority))
    scanner = Scanner(per_server_concurrent_connections_limit=2)
    scanner.queue_scans(
        [
            ServerScanRequest(
                ServerNetworkLocation("localhost", port, ip_address="127.0.0.1"), scan_commands_extra_arguments=extra
            )
            for port in ports
        ]
    )
    wanted = MozillaTlsConfiguration.get(TlsConfigurationEnum.MOZILLA_INTERMEDIATE)
    found = {}
    for result in scanner.get_results():
        assert result.scan_result is not None, result.connectivity_error_trace
        port = result.server_location.port
        found[port] = {}
        try:
            check_server_against_tls_configuration(result, wanted)
        except ServerNotCompliantWithTlsConfiguration as error:
            found[port] = error.issues
    return [found[port] for port in ports]


if __name__ == "__main__":
    print(json.dumps(scan(list(map(int, sys.argv[2:])), Path(sys.argv[1]))))
