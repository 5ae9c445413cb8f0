"""How the control plane reaches its database and Redis: URLs as Django, redis-py and Celery want them."""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import make_conninfo

from workers.addresses import is_loopback
from workers.settings import SettingsError


def postgresql(url: str, ca_file: Path | None) -> dict:
    """Django's settings of a PostgreSQL database; options in the URL's query go to libpq.

    With ``ca_file``, servers elsewhere must have a certificate of it that names them, unless the URL says otherwise.

    Raises:
        SettingsError: libpq has no such option, or the URL cannot be parsed.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or ""
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        host, port = options.pop("host", host), options.pop("port", port)
        make_conninfo(**options)
    except (ValueError, psycopg.ProgrammingError) as error:
        # The URL itself has a password, which must not be printed.
        raise SettingsError(
            [f"NEREUS_DATABASE_URL: must be postgresql://USER:PASSWORD@HOST:PORT/NAME?OPTION=VALUE: {error}"]
        ) from None
    if ca_file is not None and "sslrootcert" not in options:
        options["sslrootcert"] = str(ca_file)
        if host and not host.startswith("/") and not is_loopback(host):
            options.setdefault("sslmode", "verify-full")
    options.setdefault("connect_timeout", "10")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": options.pop("dbname", unquote(parts.path.lstrip("/"))),
        "USER": options.pop("user", unquote(parts.username or "")),
        "PASSWORD": options.pop("password", unquote(parts.password or "")),
        "HOST": host,
        "PORT": port,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": options,
    }


def redis(url: str, ca_file: Path | None) -> str:
    """A URL of Redis for redis-py, with the authorities to trust; rediss:// verifies certificates by default."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    if parts.scheme != "rediss" or ca_file is None or "ssl_ca_certs" in options:
        return url
    return urlunsplit(parts._replace(query=urlencode({**options, "ssl_ca_certs": str(ca_file)})))


def broker(url: str) -> tuple[str, dict | bool]:
    """The same Redis for Celery, and its options for TLS: unlike redis-py, Celery verifies only if asked to."""
    parts = urlsplit(url)
    if parts.scheme != "rediss":
        return url.replace("unix://", "redis+socket://"), False
    options = dict(parse_qsl(parts.query))
    mode = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL}.get(
        options.get("ssl_cert_reqs", "").lower().removeprefix("cert_"), ssl.CERT_REQUIRED
    )
    tls = {"ssl_cert_reqs": mode, "ssl_check_hostname": mode != ssl.CERT_NONE}
    if "ssl_ca_certs" in options:
        tls["ssl_ca_certs"] = options["ssl_ca_certs"]
    kept = {name: value for name, value in options.items() if not name.startswith("ssl_")}
    return urlunsplit(parts._replace(query=urlencode(kept))), tls
