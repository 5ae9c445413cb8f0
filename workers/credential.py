"""A member's credential, shown to the control plane that issued it alone."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from . import disk


class Credential(msgspec.Struct, frozen=True):
    credential: str
    member: int
    control_url: str = ""


class CredentialFile:
    """The file that keeps it, readable by the member's user alone.

    Attributes:
        value: authenticates the member; None: it has none for this control plane.
        elsewhere: URL of the control plane that issued the credential on disk, where it is another one.
    """

    def __init__(self, path: Path, control_url: str, logger):
        self._path, self._control_url, self._log = path, control_url, logger
        self.elsewhere = ""
        self.value = self._load()

    def store(self, value: str, member: int) -> None:
        self.value = value
        try:
            disk.write_private(self._path, msgspec.json.encode(Credential(value, member, self._control_url)))
        except OSError as error:
            self._log.error("credential_not_stored", path=str(self._path), reason=str(error))
        self._log.info("credential_issued", member_id=member)

    def _load(self) -> str | None:
        try:
            data = disk.read(self._path)
            stored = None if data is None else msgspec.json.decode(data, type=Credential)
        except (OSError, msgspec.DecodeError) as error:
            self._log.error("credential_unreadable", path=str(self._path), reason=str(error))
            return None
        if stored is None:
            return None
        if same_control_plane(stored.control_url, self._control_url):
            return stored.credential
        self.elsewhere = stored.control_url
        self._log.warning(
            "credential_for_another_control_plane",
            issued_by=stored.control_url,
            control_url=self._control_url,
            next="joins anew with NEREUS_JOIN_TOKEN; the credential is not sent there",
        )
        return None


def same_control_plane(issuer: str, now: str) -> bool:
    """Whether the host is the same as the issuer's, and no encryption is lost."""
    ports = {"http": 80, "https": 443}
    try:
        before, after = urlsplit(issuer), urlsplit(now)
        places = [(url.hostname, url.port or ports.get(url.scheme)) for url in (before, after)]
    except ValueError:
        return False
    return places[0] == places[1] and after.scheme in (before.scheme, "https")
