"""URLs of database and Redis in the forms of Django, redis-py and Celery."""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from workers.addresses import is_loopback
from workers.settings import SettingsError

#: connections of one process at most: its threads for members, and one for each request under way. Those beyond wait
POOL = 20
#: seconds to wait for a connection, of the pool or a new one
CONNECT_S = 10.0
#: seconds after which the pool ends a series of tries to connect; the next request begins another at once, where a
#: longer series would pause for minutes after a server was away for long
RETRY_S = 3.0


def postgresql(url: str, ca_file: Path | None) -> dict:
    """Return Django's settings of a PostgreSQL database.

    libpq itself parses the URL, so all of its options work. With ``ca_file``, servers elsewhere must have a certificate
    of it that names them, unless the URL says otherwise. Connections are kept in a pool: a request under ASGI has a
    thread of its own, and its connection would end with it.

    Raises:
        SettingsError: libpq has no such option, or the URL cannot be parsed.
    """
    # Here and not above: each process of a home with SQLite would spend a tenth of its start on it.
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        options = conninfo_to_dict(url)
        ports = [int(port) for port in str(options.get("port", "")).split(",") if port]
        if not all(0 < port < 65536 for port in ports):
            raise ValueError("a port must be from 1 to 65535")
    except (ValueError, psycopg.ProgrammingError) as error:
        # The URL itself has a password, which must not be printed.
        reason = str(error).strip() if url not in str(error) and "invalid URI query" in str(error) else "it is not one"
        raise SettingsError(
            [f"NEREUS_DATABASE_URL: must be postgresql://USER:PASSWORD@HOST:PORT/NAME?OPTION=VALUE: {reason}"]
        ) from None
    host = str(options.pop("host", ""))
    if ca_file is not None and "sslrootcert" not in options:
        options["sslrootcert"] = str(ca_file)
        if any(one and not one.startswith(("/", "@")) and not is_loopback(one) for one in host.split(",")):
            options.setdefault("sslmode", "verify-full")
    options.setdefault("connect_timeout", f"{CONNECT_S:g}")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": options.pop("dbname", ""),
        "USER": options.pop("user", ""),
        "PASSWORD": options.pop("password", ""),
        "HOST": host,
        "PORT": str(options.pop("port", "")),
        # Asked before each use: a server that restarted is noticed here, and not by a request.
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            **options,
            "pool": {"min_size": 0, "max_size": POOL, "timeout": CONNECT_S, "reconnect_timeout": RETRY_S},
        },
    }


def libpq(database: dict) -> tuple[str, str]:
    """A connection string for PostgreSQL's programs, and the password apart."""
    from psycopg.conninfo import make_conninfo

    known = {"dbname": "NAME", "user": "USER", "host": "HOST", "port": "PORT"}
    places = {name: database[key] for name, key in known.items() if database[key]}
    options = {name: value for name, value in database["OPTIONS"].items() if name != "pool"}
    return make_conninfo(**places, **options), database["PASSWORD"]


def redis(url: str, ca_file: Path | None) -> str:
    """The URL of Redis for redis-py, which verifies certificates by default."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    if parts.scheme != "rediss" or ca_file is None or "ssl_ca_certs" in options:
        return url
    return urlunsplit(parts._replace(query=urlencode({**options, "ssl_ca_certs": str(ca_file)})))


def broker(url: str) -> tuple[str, dict | bool]:
    """The URL for Celery, and its options for TLS (False without).

    Unlike redis-py, Celery verifies certificates only if asked to.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    if parts.scheme == "unix":
        if "db" in options:
            options["virtual_host"] = options.pop("db")
        place = f"redis+socket://{parts.netloc}{parts.path}"
        return (f"{place}?{urlencode(options)}" if options else place), False
    if parts.scheme != "rediss":
        return url, False
    mode = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL}.get(
        options.get("ssl_cert_reqs", "").lower().removeprefix("cert_"), ssl.CERT_REQUIRED
    )
    tls = {"ssl_cert_reqs": mode, "ssl_check_hostname": mode != ssl.CERT_NONE}
    tls |= {name: options[name] for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile") if name in options}
    kept = {name: value for name, value in options.items() if not name.startswith("ssl_")}
    return urlunsplit(parts._replace(query=urlencode(kept))), tls
