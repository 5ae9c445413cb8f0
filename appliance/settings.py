"""Django's settings, all derived from :class:`workers.settings.Settings`."""

from __future__ import annotations

import gc
import logging
import sys
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from appliance import connections
from appliance.secrets import secret_key
from workers import __version__, log
from workers.addresses import bracketed
from workers.settings import Settings, SettingsError
from workers.trust.server import box_names


def _without_traceback(record: logging.LogRecord) -> bool:
    record.exc_info = None
    record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True


# Until all applications are loaded (console/apps.py): what a start loads stays, and looking through it for garbage
# again and again takes a tenth of the start.
gc.disable()

BASE_DIR = Path(__file__).resolve().parent.parent

try:
    NEREUS = Settings.from_environ()
    NEREUS.make_folders()
except SettingsError as error:
    # Before anything else starts: an operator wants the list, not a traceback.
    sys.exit("Settings that cannot be used:\n  " + "\n  ".join(error.problems))

log.configure("control", NEREUS.log_level)
LOGGING_CONFIG = None
# One line for a request with a strange Host header: anybody could fill the log with tracebacks.
logging.getLogger("django.security.DisallowedHost").addFilter(_without_traceback)
# One line for each attempt to sign in, several for each success: the audit log has what matters.
logging.getLogger("axes").setLevel(logging.ERROR)

SECRET_KEY = secret_key(NEREUS.home)
DEBUG = False
_public = urlsplit(NEREUS.public_url)
_public_host = bracketed(_public.hostname or "")
ALLOWED_HOSTS = [*NEREUS.allowed_hosts, "127.0.0.1", "localhost", "[::1]", NEREUS.console.host]
if NEREUS.address:
    ALLOWED_HOSTS.append(bracketed(NEREUS.address))
if not NEREUS.console.loopback:
    # Members on other boxes find it by an address of this box; pages of strangers cannot have that for a name.
    ALLOWED_HOSTS.extend(bracketed(name) for name in box_names())
# Browsers name the port in an origin unless it is the scheme's own.
CSRF_TRUSTED_ORIGINS = [f"https://{'*' * host.startswith('.')}{host}" for host in NEREUS.allowed_hosts]
if _public_host:
    ALLOWED_HOSTS.append(_public_host)
    CSRF_TRUSTED_ORIGINS.append(f"{_public.scheme}://{_public.netloc}")
#: browsers reach the console over TLS alone: its own, or that of a proxy at the public URL
_encrypted = NEREUS.console.tls or _public.scheme == "https"
CSRF_FAILURE_VIEW = "console.views.access.form_refused"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _encrypted
if _public.scheme == "https":
    SECURE_HSTS_SECONDS = 365 * 86_400
# W008: the console's own address speaks either TLS alone, or plain HTTP to its proxy and this box; the proxy redirects.
# W005, W021: the public URL's domain has other hosts, which are not the appliance's to decide on.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W008", "security.W021"]

INSTALLED_APPS = [
    "unfold.apps.BasicAppConfig",
    "appliance.admin_site.ConsoleAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "rest_framework",
    "drf_spectacular",
    "axes",
    "appliance",
    "registry",
    "scheduler",
    "scheduler.history",
    "console",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "appliance.compression.TextCompression",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "appliance.last_slash.LastSlash",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "registry.audit.origins.AuditMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "appliance.admin_site.AdminGuard",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "appliance.urls"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "console" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "console.access.role",
                "console.access.repairs",
            ]
        },
    }
]


def _database() -> dict:
    if NEREUS.database_url:
        return connections.postgresql(NEREUS.database_url, NEREUS.ca_file)
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": NEREUS.home / "nereus.sqlite3",
        "OPTIONS": {
            # Deferred transactions fail with "database is locked" as soon as two writers upgrade at once.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            # FULL: a commit is on the disk before anybody learns of it. A key that was deleted stays deleted.
            # None may take the write lock: a connection that only reads would wait for writers (auto_vacuum does).
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA journal_size_limit=67108864;",
        },
        # Tests use a file too, because several processes and threads of a real appliance share it.
        "TEST": {"NAME": NEREUS.home / "test.sqlite3"},
    }


try:
    DATABASES = {"default": _database()}
except SettingsError as error:
    sys.exit("Settings that cannot be used:\n  " + "\n  ".join(error.problems))
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

#: redis-py reads this form; Celery wants its own (below)
REDIS_URL = connections.redis(NEREUS.redis_url, NEREUS.ca_file) or f"unix://{NEREUS.socket_folder / 'redis.sock'}"
CELERY_BROKER_URL, CELERY_BROKER_USE_SSL = connections.broker(REDIS_URL)
CELERY_TASK_IGNORE_RESULT = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
# Nothing asks workers by broadcast, whose channels an access list of Redis would have to permit beside the keys.
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 3600,
    # Seconds after which a worker that waits for a task asks again; what comes meanwhile wakes it.
    "polling_interval": 10,
    "global_keyprefix": f"{NEREUS.redis_prefix}:celery:",
}
CELERY_TASK_ROUTES = {
    "scheduler.plan": {"queue": "planning"},
    "scheduler.promise": {"queue": "simulation"},
    "scheduler.what_if": {"queue": "simulation"},
}
CELERY_TASK_DEFAULT_QUEUE = "control"
CELERY_BEAT_SCHEDULE = {
    "plan": {
        "task": "scheduler.plan",
        "schedule": NEREUS.plan_period_s,
        "kwargs": {"trigger": "period"},
        # A plan that waited a whole period is superseded by the next one.
        "options": {"expires": NEREUS.plan_period_s},
    },
    "tend": {"task": "scheduler.tend", "schedule": 10.0, "options": {"expires": 10.0}},
    "promise": {
        "task": "scheduler.promise",
        "schedule": NEREUS.promise_period_s,
        "options": {"expires": NEREUS.promise_period_s},
    },
    "history": {"task": "scheduler.history", "schedule": 10.0, "options": {"expires": 10.0}},
    **{
        f"heartbeat-{service}": {
            "task": "appliance.heartbeat",
            "schedule": 10.0,
            "kwargs": {"service": service},
            # To this home's own workers: those of another home on the same Redis would answer for them.
            "options": {"queue": f"{queue}.{NEREUS.instance}", "expires": 10.0},
        }
        for queue, service in (("control", "celery"), ("planning", "planning"), ("simulation", "simulation"))
    },
}

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "registry.access.backend.RoleBackend"]
LOGIN_URL = "console:login"
# By account and address together: strangers cannot lock an operator out from the operator's own address.
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = timedelta(minutes=15)
# Each attempt that it counts makes its row longer: one that is refused unread must not.
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_RESET_ON_SUCCESS = True
AXES_DISABLE_ACCESS_LOG = True
AXES_CLIENT_IP_CALLABLE = "registry.access.throttles.address"
AXES_LOCKOUT_CALLABLE = "console.views.access.locked_out"
AXES_SENSITIVE_PARAMETERS = ["username", "password"]
AXES_VERBOSE = False
AXES_ENABLE_ADMIN = False
CACHES = {
    "default": {
        # Throttles count here: one process serves all pages.
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        "OPTIONS": {"MAX_ENTRIES": 100_000},
    }
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "registry.api.authentication.BearerAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["registry.api.authentication.RolePermission"],
    "DEFAULT_THROTTLE_CLASSES": ["registry.access.throttles.AccountThrottle"],
    "DEFAULT_SCHEMA_CLASS": "registry.api.schema.ProblemSchema",
    "DEFAULT_PAGINATION_CLASS": "registry.api.pages.BoundedPages",
    "PAGE_SIZE": 100,
    "URL_FORMAT_OVERRIDE": None,
    "EXCEPTION_HANDLER": "registry.api.problems.handle",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Nereus control API",
    "DESCRIPTION": "Applications, variants, profiles, nodes, devices and plans.",
    "VERSION": __version__,
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["registry.api.authentication.RolePermission"],
    # Two components have it: an application, and one as a change left it.
    "ENUM_NAME_OVERRIDES": {
        "ApplicationStateEnum": "registry.models.Application.State",
        "JoinTokenKindEnum": "registry.models.JoinToken.Kind",
        "MarkKindEnum": "scheduler.history.models.Mark.Kind",
        "AccessRoleEnum": ["viewer", "model owner", "operator"],
        "MemberRoleEnum": ["node", "gateway"],
    },
}

STATIC_URL = "/static/"
STATIC_ROOT = NEREUS.home / "static"
STATIC_ROOT.mkdir(exist_ok=True)  # whitenoise warns otherwise, though it serves from the packages
# An installed package has it beside this file, where it is found as an application's.
STATICFILES_DIRS = [path for path in (BASE_DIR / "static",) if path.is_dir()]
WHITENOISE_USE_FINDERS = True

FILE_UPLOAD_TEMP_DIR = str(NEREUS.home)
#: uploads go to disk chunk by chunk, never into memory
FILE_UPLOAD_HANDLERS = ["django.core.files.uploadhandler.TemporaryFileUploadHandler"]

TIME_ZONE = "UTC"
# Cookies belong to a host with all its ports: another program there must not get or replace these.
SESSION_COOKIE_NAME = f"nereus_session_{NEREUS.console.port}"
CSRF_COOKIE_NAME = f"nereus_csrf_{NEREUS.console.port}"

UNFOLD = {
    "SITE_TITLE": "Nereus",
    "SITE_HEADER": "Nereus",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": f"{STATIC_URL}nereus/mark.svg"}],
    "SHOW_VIEW_ON_SITE": False,
    "SCRIPTS": [f"{STATIC_URL}nereus/admin.js"],
    "STYLES": [f"{STATIC_URL}nereus/admin.css"],
}
