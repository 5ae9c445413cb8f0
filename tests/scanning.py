"""A scanner's objections to a server's TLS."""

from __future__ import annotations

from pathlib import Path


def objections(ports: list[int], authority: Path) -> list[dict[str, str]]:
    """List a scanner's objections for each port, by subject.

    sslyze checks the ports by Mozilla's intermediate configuration.
    """
    # Each of pytest's processes reads this file; the one that scans needs the scanner.
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
