"""The box of the control plane: its disk, clock, certificate, backups, servers and isolation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from django.conf import settings
from django.contrib.auth import get_user_model

from appliance import redis_server
from registry.inspection import sandbox
from registry.models import AuditEntry
from scheduler import words
from scheduler.repairs import samples
from scheduler.repairs.facts import Facts
from scheduler.repairs.repair import Action, Repair, Severity
from scheduler.troubles import DATABASE, REDIS
from scheduler.troubles import current as current_troubles
from workers.trust import server

MIB, GIB = 2**20, 2**30
#: free bytes below which nothing may be written soon, and below which somebody should make room
DISK_FULL, DISK_LOW = 256 * MIB, 2 * GIB
#: time to the full disk, at the present rate, from which somebody should make room
DISK_SOON = timedelta(days=7)
#: time to the end of a certificate from which it should be replaced
CERTIFICATE_ENDS = timedelta(days=30)
#: age of the newest backup from which another should be made
BACKUP_AGE = timedelta(days=30)
#: seconds for which a clock that was set is shown
CLOCK_SHOWN_S = 86_400.0
#: a plan that lies further in the future was made before the clock was set back
AHEAD = timedelta(minutes=5)


class Disk(NamedTuple):
    free: int
    total: int
    read_only: bool = False


def disk_below(home: Path) -> Disk:
    found = os.statvfs(home)
    return Disk(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, bool(found.f_flag & os.ST_RDONLY))


_TROUBLES = {
    REDIS: (
        "Redis fails",
        "Live figures, pushes and plans on request are delayed; serving continues.",
        "Check its memory and disk; the appliance restarts its own automatically (service_failed in logs/nereus.log).",
    ),
    DATABASE: (
        "The database fails",
        "No change can be stored; serving continues with the plan in force.",
        "Check its disk and its log; manage.py prepare says what the database lacks.",
    ),
}


def troubles(_facts: Facts) -> Iterator[Repair]:
    for trouble in current_troubles():
        title, effect, text = _TROUBLES[trouble["what"]]
        yield Repair(
            key=f"trouble:{trouble['what']}",
            severity=Severity.ERROR,
            title=title,
            effect=f"{effect} The error: {trouble['detail']}",
            action=Action(text),
            since=datetime.fromtimestamp(trouble["since"], UTC),
            # An earlier process may have met it before.
            at_least=True,
            ignorable=False,
        )


def disk(facts: Facts) -> Iterator[Repair]:
    found = disk_below(settings.NEREUS.home)
    shrinks = facts.from_redis(samples.disk_rate, None)
    soon = shrinks is not None and shrinks * DISK_SOON.total_seconds() > found.free
    if not (found.read_only or found.free < DISK_LOW or soon):
        return
    error = found.read_only or found.free < DISK_FULL
    if found.read_only:
        title = "The disk is read-only"
    else:
        title = "The disk is full" if error else "The disk is nearly full"
    left = f"{words.size(found.free)} of {words.size(found.total)} are left below {settings.NEREUS.home}"
    if shrinks is not None and shrinks > 0:
        left += f"; at the rate of the last day they last {words.duration(found.free / shrinks)}"
    yield Repair(
        key="disk",
        severity=Severity.ERROR if error else Severity.WARNING,
        title=title,
        effect=f"{left}.",
        action=Action(
            "Check the disk (dmesg) and mount it for writing again."
            if found.read_only
            else "Delete variants and backups that nobody needs, lower NEREUS_KEEP_PLANS, or give the disk more room."
        ),
    )


def clock_set(facts: Facts) -> Iterator[Repair]:
    jump, plan = facts.from_redis(samples.clock_jump, None), facts.plan
    if plan is not None and plan.created - facts.now > AHEAD:
        ahead = words.duration((plan.created - facts.now).total_seconds())
        effect = f"Plan {plan.pk} was made {ahead} in the future: times on this console are off by the same amount."
        since = None
    elif jump is not None and jump.age_s < CLOCK_SHOWN_S:
        way = "forward" if jump.by_s > 0 else "back"
        effect = f"It was set {way} by {words.duration(abs(jump.by_s))}; earlier timestamps are off by the same amount."
        since = jump.at
    else:
        return
    yield Repair(
        key="clock",
        severity=Severity.WARNING,
        title="The clock of this box jumped",
        effect=f"{effect} Serving and plans do not depend on it.",
        action=Action("Let the box follow a time server (timedatectl set-ntp true), or replace its battery."),
        since=since,
    )


def certificate(facts: Facts) -> Iterator[Repair]:
    nereus = settings.NEREUS
    if not nereus.tls_used:
        return
    path = nereus.tls_cert or server.own(nereus).server_file
    try:
        # The server's own comes first in a chain.
        ends = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except (OSError, ValueError) as error:
        yield Repair(
            key="certificate",
            severity=Severity.ERROR,
            title="The certificate cannot be read",
            effect=f"Servers keep the present one until they are restarted. {path}: {error}",
            action=Action("Put the certificate and its key back; they are used within 10 s."),
        )
        return
    if ends - facts.now < CERTIFICATE_ENDS:
        left = (ends - facts.now).total_seconds()
        over = left <= 0
        when = f"ended {words.duration(-left)} ago" if over else f"ends in {words.duration(left)}"
        yield Repair(
            key="certificate",
            severity=Severity.ERROR if over else Severity.WARNING,
            title="The certificate has expired" if over else "The certificate expires soon",
            effect=f"{path} {when} ({ends:%Y-%m-%d %H:%M} UTC); clients refuse it afterwards.",
            action=Action(
                "It should have been renewed automatically: look for certificate_not_replaced in logs/nereus.log."
                if nereus.tls_cert is None
                else "Replace the files of NEREUS_TLS_CERT and NEREUS_TLS_KEY; they are used within 10 s."
            ),
            since=ends - CERTIFICATE_ENDS,
        )


def redis(_facts: Facts) -> Iterator[Repair]:
    # A server elsewhere is its operators'.
    program = None if settings.NEREUS.redis_url else redis_server.chosen()
    if program and program.hole:
        yield Repair(
            key="redis",
            severity=Severity.WARNING,
            title="Redis has a known vulnerability",
            effect=f"{program.hole} Only processes of this appliance reach it, over a socket of their own.",
            action=Action(
                "Bring the box's packages up to date (Debian: apt update && apt upgrade), and start it again."
            ),
        )


def isolation(_facts: Facts) -> Iterator[Repair]:
    if lacks := sandbox.warning(settings.NEREUS):
        yield Repair(
            key="isolation",
            severity=Severity.WARNING,
            title="Uploads are not isolated",
            effect=lacks,
            action=Action("Use a kernel with Landlock and seccomp (Linux 5.13 or newer)."),
        )


def backup(facts: Facts) -> Iterator[Repair]:
    made = AuditEntry.objects.filter(kind="backup", action="made").values_list("at", flat=True).first()
    accounts = get_user_model().objects.order_by("date_joined")
    last = made or accounts.values_list("date_joined", flat=True).first()
    if last is None or facts.now - last < BACKUP_AGE:
        return
    age = words.duration((facts.now - last).total_seconds())
    applications = words.several(len(facts.applications), "application")
    yield Repair(
        key="backup",
        severity=Severity.WARNING,
        title=f"No backup for {BACKUP_AGE.days} days" if made else "No backup was ever made",
        effect=f"A broken disk would cost the changes of {age}, or all {applications} with "
        f"{words.several(len(facts.variants), 'variant')}.",
        action=Action("Run: python manage.py backup FILE, and keep the file on another disk."),
        since=last + BACKUP_AGE,
    )
