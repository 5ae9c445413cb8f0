"""HTTP to Django, websockets to members' links and browsers' live pages."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application

django = get_asgi_application()

from django.conf import settings  # noqa: E402
from django.urls import path, re_path  # noqa: E402

from appliance.alive import AliveCheck  # noqa: E402
from appliance.websockets import SameOrigin  # noqa: E402
from console.consumers import LiveConsumer, unknown_path  # noqa: E402
from registry.api.body_limit import BodyLimit  # noqa: E402
from registry.api.heads import HeadCheck  # noqa: E402
from scheduler.members.gateway import GatewayLink  # noqa: E402
from scheduler.members.node import NodeLink  # noqa: E402

websocket = URLRouter(
    [
        # Members are programs: they have a token and no origin. Browsers have a session, and an origin to check.
        path("ws/node/", NodeLink.serve),
        path("ws/gateway/", GatewayLink.serve),
        path("ws/console/live/", SameOrigin(AuthMiddlewareStack(LiveConsumer.serve))),
        re_path(r"", unknown_path),
    ]
)
http = HeadCheck(BodyLimit(django, settings.NEREUS.max_upload_bytes))
application = ProtocolTypeRouter({"http": AliveCheck(http), "websocket": websocket})
