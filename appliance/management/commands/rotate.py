"""Replace secrets of this appliance: one of them, or all."""

from __future__ import annotations

import secrets

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from appliance.local.firststart import HASHED
from appliance.management.existing import check_database
from appliance.secrets import credentials, replace_secret_key, save_credentials
from registry import events
from registry.errors import Conflict
from registry.members import replace_authority
from registry.models import Gateway, JoinToken, Node, hash_secret
from workers.secret_kinds import new_secret
from workers.trust import server
from workers.trust.authority import CertificateError

#: those of a box of its own, which need no database
FILES = {"tls", "tls-authority"}
#: what can be rotated, and what follows from it
SECRETS = {
    "password": "the first account's password",
    "api-token": "the API token of credentials.json",
    "api-key": "the API key of credentials.json",
    "join-token": "the join token of credentials.json, which admits this box's own members",
    "members": "credentials of nodes and gateways: they join again with their join token when they next connect",
    "members-authority": "the authority of members' certificates: connected members get new ones within seconds",
    "signing-key": "Django's signing key: once the appliance was started again, everybody signs in again, and webhooks "
    "sign with other keys (make them anew to learn these)",
    "tls": "key and certificate of the appliance's own (tls/server.pem), in use within 10 s",
    "tls-authority": "the authority of the own certificate, and that: give clients the new tls/authority.pem",
}


class Command(BaseCommand):
    help = "Replace secrets: " + "; ".join(f"{name}: {text}" for name, text in SECRETS.items())

    def add_arguments(self, parser) -> None:
        parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SECRETS))
        parser.add_argument("--all", action="store_true", help="all of them")

    def handle(self, *args, **options) -> None:
        names = list(SECRETS) if options["all"] else options["names"]
        wrong = [name for name in names if name not in SECRETS]
        if wrong or not names:
            what = f"{', '.join(wrong)}: not a secret; " if wrong else ""
            raise CommandError(f"{what}name what to rotate, or --all: {', '.join(SECRETS)}")
        if set(names) <= FILES and server.own(settings.NEREUS).server_file.exists():
            # Also on a gateway's box, which has no database.
            names = _with_certificate(names, insist=True)
        else:
            check_database()
            names = _rotate_stored(_with_certificate(names, insist=not options["all"]), insist=not options["all"])
        if FILES & set(names):
            try:
                server.rotate_own(settings.NEREUS, "tls-authority" in names)
            except (CertificateError, OSError) as error:
                raise CommandError(str(error)) from None
        for name in names:
            self.stdout.write(f"rotated {name}: {SECRETS[name]}")


def _rotate_stored(names: list[str], insist: bool) -> list[str]:
    """Replace secrets of the database, too; names that cannot be now are left out."""
    home = settings.NEREUS.home
    if "members-authority" in names:
        try:
            replace_authority()
        except (CertificateError, Conflict) as error:
            if insist:
                raise CommandError(f"members-authority: {error}") from None
            names.remove("members-authority")
    known = credentials(home)
    made = _rotate_rows(names, known)
    if made:
        # After the database: a run that is cut off here is repeated, while the reverse would lock everybody out.
        save_credentials(home, {**known, **made})
    if "signing-key" in names:
        replace_secret_key(home)
    return names


def _with_certificate(names: list[str], insist: bool) -> list[str]:
    """Leave out names of a certificate of others. Raises CommandError if asked for."""
    values = settings.NEREUS
    if values.tls_used and values.tls_cert is None:
        return names
    asked = [name for name in names if name.startswith("tls")]
    if asked and insist:
        why = (
            f"NEREUS_TLS_CERT={values.tls_cert} is yours: replace the files, they are in use within 10 s"
            if values.tls_cert is not None
            else "no address of this appliance uses TLS (NEREUS_TLS)"
        )
        raise CommandError(f"{', '.join(asked)}: {why}")
    return [name for name in names if name not in asked]


@transaction.atomic
def _rotate_rows(names: list[str], known: dict[str, str]) -> dict[str, str]:
    """New secrets by their names in ``credentials.json``, hashes replaced."""
    made: dict[str, str] = {}
    if "password" in names:
        made["console_password"] = secrets.token_urlsafe(12)
        user = get_user_model().objects.get(username=known.get("console_user", "admin"))
        user.set_password(made["console_password"])
        user.save()
    for kind in HASHED:
        if kind.replace("_", "-") in names:
            made[kind] = _replace(kind, known.get(kind))
    if "members" in names:
        for model in (Node, Gateway):
            # No hash is this long: the old credential fits nothing, and a new one is given at the next join.
            for member in model.objects.exclude(credential_hash=""):
                model.objects.filter(pk=member.pk).update(credential_hash="")
    return made


def _replace(kind: str, old: str | None) -> str:
    model, column = HASHED[kind]
    rows = model.objects.filter(**{column: hash_secret(old or "")})
    row = rows.first()
    if row is None:
        raise CommandError(f"{kind}: credentials.json has none that is in use; make one in the console")
    secret = new_secret(kind)
    prefix = {} if model is JoinToken else {"prefix": secret[:8]}
    rows.update(**{column: hash_secret(secret)}, **prefix)
    events.changed(kind, row.name)
    return secret
