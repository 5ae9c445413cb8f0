"""Messages to gateways about each other, over their real consumer.

Gateways join, stop and lose their links.
"""

from __future__ import annotations

import asyncio

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator

from registry.models import JoinToken, hash_secret
from scheduler.control.bursts import TotalArrivals
from scheduler.members.gateway_consumer import GatewayConsumer
from workers.protocol import control

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_redis")]


@pytest.fixture
def lingering(monkeypatch):
    """Sets for how long a gateway that is away counts; nobody is connected yet."""

    def set_to(seconds: float) -> None:
        monkeypatch.setattr(GatewayConsumer, "total", TotalArrivals(seconds))

    return set_to


class Link:
    """A gateway's end of its link."""

    def __init__(self, name: str):
        self.name = name
        self.secret = "token"

    async def join(self) -> None:
        scope = {
            "type": "websocket",
            "path": "/ws/gateway/",
            "headers": [(b"authorization", f"Bearer {self.secret}".encode())],
            "subprotocols": [],
        }
        self.socket = ApplicationCommunicator(GatewayConsumer.as_asgi(), scope)
        await self.socket.send_input({"type": "websocket.connect"})
        assert (await self.socket.receive_output(60))["type"] == "websocket.accept"
        await self.say(control.JoinGateway(name=self.name, address="http://box:8000"))
        answer = await self.received()
        assert isinstance(answer, control.Joined)
        self.secret = answer.credential or self.secret

    async def say(self, message: control.FromMember) -> None:
        await self.socket.send_input({"type": "websocket.receive", "text": control.encode(message)})

    async def received(self) -> control.ToMember:
        event = await self.socket.receive_output(60)
        return control.decode_to_gateway(event["text"])

    async def wait_for_gateways(self, gateways: int) -> None:
        for _ in range(5):
            message = await self.received()
            if isinstance(message, control.GatewayConfig) and message.gateways == gateways:
                return
        raise AssertionError(f"{self.name} got no message with {gateways} gateways")

    async def received_meanwhile(self, seconds: float) -> set[int]:
        """Numbers of gateways in the messages that it gets in that time."""
        found = set()
        while not await self.socket.receive_nothing(seconds):
            message = await self.received()
            if isinstance(message, control.GatewayConfig):
                found.add(message.gateways)
        return found

    async def lose(self, code: int = 1006) -> None:
        await self.socket.send_input({"type": "websocket.disconnect", "code": code})
        await self.socket.wait(60)


async def linked(*names: str) -> list[Link]:
    await sync_to_async(JoinToken.objects.create)(name="rack", token_hash=hash_secret("token"), auto_approve=True)
    links = [Link(name) for name in names]
    for link in links:
        await link.join()
    for link in links:
        await link.wait_for_gateways(len(names))
    return links


NOTHING = control.GatewayStats(applications={}, ready=True)


async def test_a_link_that_is_lost_for_a_moment_makes_nobody_a_lone_gateway(lingering):
    lingering(600.0)
    one, two = await linked("one", "two")
    await two.lose()
    await one.say(NOTHING)
    assert await one.received_meanwhile(0.3) <= {2}
    await two.join()
    await two.wait_for_gateways(2)
    await one.lose()
    await two.lose()


async def test_one_that_stays_away_is_given_up_and_the_others_are_notified(lingering):
    lingering(0.2)
    one, two, three = await linked("one", "two", "three")
    await three.lose()
    await asyncio.sleep(0.25)
    await one.say(NOTHING)
    await one.wait_for_gateways(2)
    await two.wait_for_gateways(2)
    await two.lose()
    await asyncio.sleep(0.25)
    await one.say(NOTHING)
    await one.wait_for_gateways(1)
    await one.lose()


async def test_of_one_that_stops_in_order_the_others_are_notified_at_once(lingering):
    lingering(600.0)
    one, two = await linked("one", "two")
    await two.lose(code=1000)
    await one.wait_for_gateways(1)
    await one.lose()
