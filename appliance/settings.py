"""Django's settings, all of them derived from :class:`workers.settings.Settings` (``NEREUS_*``)."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from appliance.secrets import secret_key
from workers import __version__, log
from workers.settings import Settings, SettingsError


def _without_traceback(record: logging.LogRecord) -> bool:
    record.exc_info = None
    record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True


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

SECRET_KEY = secret_key(NEREUS.home)
DEBUG = False
ALLOWED_HOSTS = [*NEREUS.allowed_hosts, "127.0.0.1", "localhost", "[::1]", NEREUS.console.host]
CSRF_TRUSTED_ORIGINS = [f"https://{host}" for host in NEREUS.allowed_hosts]

INSTALLED_APPS = [
    "unfold",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "rest_framework",
    "rest_framework.authtoken",
    "drf_spectacular",
    "appliance",
    "registry",
    "scheduler",
    "console",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "appliance.urls"
ASGI_APPLICATION = "appliance.asgi.application"
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
            ]
        },
    }
]


def _database() -> dict:
    if NEREUS.database_url:
        parts = urlsplit(NEREUS.database_url)
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": unquote(parts.path.lstrip("/")),
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            "HOST": parts.hostname or "",
            "PORT": parts.port or "",
            "CONN_HEALTH_CHECKS": True,
        }
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": NEREUS.home / "nereus.sqlite3",
        "OPTIONS": {
            # Deferred transactions fail with "database is locked" as soon as two writers upgrade at once.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
        # Tests use a file too, because several processes and threads of a real appliance share it.
        "TEST": {"NAME": NEREUS.home / "test.sqlite3"},
    }


DATABASES = {"default": _database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

#: redis-py and channels-redis read this form; Celery wants its own (below)
REDIS_URL = NEREUS.redis_url or f"unix://{NEREUS.socket_folder / 'redis.sock'}"
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.core.RedisChannelLayer",
        # The layer blocks for 5 s on an empty channel, which is also redis-py's default time-out.
        "CONFIG": {
            "hosts": [{"address": REDIS_URL, "socket_timeout": 20}],
            "capacity": 1000,
            "expiry": 30,
            # By the wall clock. Consumers join again all the time: this rids groups of those whose process was killed.
            "group_expiry": 7 * 86_400,
        },
    }
}

CELERY_BROKER_URL = REDIS_URL.replace("unix://", "redis+socket://")
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 3600}
CELERY_TASK_ROUTES = {"scheduler.plan": {"queue": "planning"}}
CELERY_TASK_DEFAULT_QUEUE = "control"
CELERY_BEAT_SCHEDULE_FILENAME = str(NEREUS.home / "celerybeat-schedule")
CELERY_BEAT_SCHEDULE = {
    "plan": {
        "task": "scheduler.plan",
        "schedule": NEREUS.plan_period_s,
        "kwargs": {"trigger": "period"},
        # A plan that waited a whole period is superseded by the next one.
        "options": {"expires": NEREUS.plan_period_s},
    },
    "tend": {"task": "scheduler.tend", "schedule": 10.0, "options": {"expires": 10.0}},
}

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "admin:login"

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "registry.api.authentication.BearerAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAdminUser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_PAGINATION_CLASS": "rest_framework.pagination.LimitOffsetPagination",
    "PAGE_SIZE": 100,
    "EXCEPTION_HANDLER": "registry.api.problems.handle",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Nereus control API",
    "DESCRIPTION": "Applications, variants, profiles, nodes, devices and plans.",
    "VERSION": __version__,
    "SERVE_INCLUDE_SCHEMA": False,
    # Two components have it: an application, and one as a change left it.
    "ENUM_NAME_OVERRIDES": {"ApplicationStateEnum": "registry.models.Application.State"},
}

STATIC_URL = "/static/"
STATIC_ROOT = NEREUS.home / "static"
STATIC_ROOT.mkdir(exist_ok=True)  # whitenoise warns otherwise, though it serves from the packages
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
WHITENOISE_USE_FINDERS = True

FILE_UPLOAD_TEMP_DIR = str(NEREUS.home)
#: uploads go to disk chunk by chunk, never into memory
FILE_UPLOAD_HANDLERS = ["django.core.files.uploadhandler.TemporaryFileUploadHandler"]

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"

UNFOLD = {
    "SITE_TITLE": "Nereus",
    "SITE_HEADER": "Nereus",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": f"{STATIC_URL}nereus/mark.svg"}],
    "SHOW_VIEW_ON_SITE": False,
}
