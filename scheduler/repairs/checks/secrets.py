"""Keys and tokens that expire while in use, and join tokens that never expire."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from registry.models import ApiKey, ApiToken, JoinToken
from scheduler import words
from scheduler.repairs.facts import Facts
from scheduler.repairs.repair import Action, Repair, Severity

#: time to a key's end from which it is shown, and for which a token that expired is shown
SOON = timedelta(days=7)
#: a token that was used so recently is in use
USED = timedelta(days=7)


def api_keys(facts: Facts) -> Iterator[Repair]:
    """API keys that end soon: whether they are used is not recorded."""
    for key in ApiKey.objects.exclude(expires=None):
        left = key.expires - facts.now
        if timedelta(0) < left < SOON:
            reach = "all applications" if key.applications is None else words.listed(key.applications) or "none"
            yield Repair(
                key=f"api_key:{key.name}",
                severity=Severity.WARNING,
                title=f"API key {key.name} expires soon",
                effect=f"Queries with it ({reach}) are refused in {_in(left, key.expires)}.",
                action=Action("Give its clients another key, or set a later end on the page API keys."),
                since=key.expires - SOON,
                shown_to="api-keys",
            )


def api_tokens(facts: Facts) -> Iterator[Repair]:
    for token in ApiToken.objects.exclude(expires=None).exclude(last_used=None):
        left = token.expires - facts.now
        if not timedelta(0) < left < SOON or facts.now - token.last_used > USED:
            continue
        yield Repair(
            key=f"api_token:{token.name}",
            severity=Severity.WARNING,
            title=f"API token {token.name} expires soon",
            effect=f"A program used it at {token.last_used:%Y-%m-%d %H:%M} UTC; it is refused in "
            f"{_in(left, token.expires)}.",
            action=Action("Make another token on the page Access and give it to the program."),
            since=token.expires - SOON,
            shown_to="api-tokens",
        )


def join_tokens(_facts: Facts) -> Iterator[Repair]:
    for token in JoinToken.objects.filter(expires=None, uses=None, own_box=False):
        approves = "that needs no approval" if token.auto_approve else "that waits for approval"
        yield Repair(
            key=f"join_token:{token.name}",
            severity=Severity.WARNING,
            title=f"Join token {token.name} never expires",
            effect=f"Who has it can join with any number of boxes, each as a member {approves}.",
            action=Action(
                "Delete it once your boxes have joined: members keep their own credentials.",
                "Delete",
                "DELETE",
                "join-token",
                {"name": token.name},
                f"Delete join token {token.name}?",
            ),
            since=token.created,
            shown_to="join-tokens",
        )


def _in(left: timedelta, ends: datetime) -> str:
    return f"{words.duration(left.total_seconds())} ({ends:%Y-%m-%d %H:%M} UTC)"
