"""Applications, their planned variants, and API keys. Pure."""

from __future__ import annotations

import functools
import hashlib

import msgspec

from workers.protocol.control import GatewayConfig
from workers.protocol.specs import ApplicationSpec, PlanSpec, Resident, VariantSpec
from workers.secret_kinds import PREFIXES, USES, kind_of
from workers.v2.grpc_memory import GrpcMemory
from workers.v2.http_memory import HttpReader

from .errors import NoSuchVariant, NotFound, Unauthenticated, Unavailable
from .key_limits import check_expiry, permit

#: reason for errors before the first configuration
NOT_CONFIGURED = "no configuration from the control plane yet"


class Catalog:
    """A configuration, indexed; replaced whole when the control plane sends another."""

    def __init__(self, config: GatewayConfig | None = None):
        self.configured = config is not None
        self.config = config or GatewayConfig(applications=(), key_hashes=(), plan=PlanSpec(version=0))
        self.applications: dict[str, ApplicationSpec] = {spec.name: spec for spec in self.config.applications}
        #: what edges remember of queries by this configuration: readers by application, and messages
        self.readers: dict[str, HttpReader] = {}
        self.messages = GrpcMemory()
        self._keys = frozenset(self.config.key_hashes)
        self._residents: dict[str, list[tuple[str, Resident]]] = {}
        self._variants: dict[str, dict[str, VariantSpec]] = {}
        for device in self.config.plan.devices:
            for resident in device.residents:
                self._residents.setdefault(resident.variant.application, []).append((device.device, resident))
            for resident in (*device.residents, *device.standby_residents):
                known = resident.variant
                self._variants.setdefault(known.application, {})[known.name] = known

    def authenticate(self, authorization: bytes | None) -> str:
        """Check an ``Authorization`` header's value; the hash of its key.

        Raises:
            Unauthenticated: none, another scheme, or an unknown key.
            Unavailable: there is no configuration yet.
        """
        if authorization is None:
            raise Unauthenticated("Authorization: missing; send 'Authorization: Bearer KEY' with an API key")
        scheme, _, key = authorization.partition(b" ")
        if scheme.lower() != b"bearer" or not key.strip():
            raise Unauthenticated("Authorization: must be 'Bearer KEY'")
        if not self.configured:
            raise Unavailable(NOT_CONFIGURED + "; try again")
        # Only hashes are compared, so the time of a comparison reveals nothing about keys.
        key_hash = hashlib.sha256(key.strip()).hexdigest()
        if key_hash not in self._keys:
            raise Unauthenticated(_unknown(key.strip().decode("latin-1")))
        check_expiry(self.config.key_limits.get(key_hash))
        return key_hash

    def permit(self, client: str, application: str) -> None:
        permit(self.config.key_limits.get(client), application)

    def reached(self, client: str) -> list[str]:
        limits = self.config.key_limits.get(client)
        names = sorted(self.applications)
        return (
            names if limits is None or limits.applications is None else [n for n in names if n in limits.applications]
        )

    def check_client(self, client: str) -> None:
        """Check that a key, given by its hash, still exists and has not expired.

        Raises:
            Unauthenticated: it does not exist any more, or has expired.
        """
        if client not in self._keys:
            raise Unauthenticated("Authorization: this API key is not known")
        check_expiry(self.config.key_limits.get(client))

    @functools.cached_property
    def signatures(self) -> bytes:
        """By application, as the parser process takes them."""
        return msgspec.msgpack.encode({name: spec.signature for name, spec in self.applications.items()})

    def application(self, name: str) -> ApplicationSpec:
        spec = self.applications.get(name)
        if spec is None:
            raise NotFound(f"model {name[:80]!r}: no such application")
        return spec

    def residents(self, application: str) -> list[tuple[str, Resident]]:
        return self._residents.get(application, [])

    def variants(self, application: str) -> dict[str, VariantSpec]:
        return self._variants.get(application, {})

    def resolve(self, model: str, version: str | None) -> tuple[ApplicationSpec, str | None]:
        """An application, and the variant of the plan that a version names (None: any).

        Raises:
            NotFound: no such application; :class:`NoSuchVariant`: no such variant in the plan.
        """
        spec = self.application(model)
        if version is None:
            return spec, None
        if not version:
            raise NotFound("version: is empty")
        variants = self.variants(model)
        if version not in variants:
            has = ", ".join(sorted(variants)) or "none"
            raise NoSuchVariant(
                f"version {version[:80]!r}: the plan has no such variant of {model}; it has {has}. Versions are names "
                "of variants: leave the version out for Nereus to choose one. A registered variant is loaded once "
                "queries name it, where there is room"
            )
        return spec, version


def _unknown(key: str) -> str:
    kind = kind_of(key)
    if kind in ("", "api_key"):
        return "Authorization: this API key is not known"
    return f"Authorization: this is {USES[kind]}; queries take an API key (console, Keys; {PREFIXES['api_key']}…)"
