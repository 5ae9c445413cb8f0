"""Rows of the history, the position up to which Redis was read, and marks."""

from __future__ import annotations

from django.db import models


class HistoryRow(models.Model):
    """All figures of one bucket; see :mod:`.packing`.

    The columns that are read most come first: SQLite then leaves the others on pages of their own.
    """

    resolution = models.PositiveIntegerField()
    #: unix seconds of the bucket's begin, by the wall clock when its figures were reported
    start = models.BigIntegerField()
    #: seconds for which there is a report
    seconds = models.PositiveIntegerField()
    total = models.BinaryField()
    applications = models.BinaryField()
    variants = models.BinaryField()
    devices = models.BinaryField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["resolution", "start"], name="history_row_once")]


class HistoryName(models.Model):
    """The number by which rows name an application, a variant or a device.

    A variant's name is ``APPLICATION/VARIANT``.
    """

    class Kind(models.TextChoices):
        APPLICATION = "a"
        VARIANT = "v"
        DEVICE = "d"

    kind = models.CharField(max_length=1, choices=Kind.choices)
    name = models.CharField(max_length=300)
    #: :attr:`HistoryPosition.folds` when it was used last, to within a day
    used = models.PositiveBigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["kind", "name"], name="history_name_once")]


class HistoryPosition(models.Model):
    """How far Redis' streams are recorded: one row, which moves with what is stored."""

    #: transactions that recorded something
    folds = models.PositiveBigIntegerField(default=0)
    #: see :class:`.recording.Position`
    position = models.JSONField(default=dict)


class Mark(models.Model):
    """Something that happened, for charts."""

    class Kind(models.TextChoices):
        PLAN = "plan"
        LOST = "lost"
        BACK = "back"
        UPLOAD = "upload"
        CHANGE = "change"
        NOTE = "note"

    kind = models.CharField(max_length=6, choices=Kind.choices)
    #: the member, variant or plan that it is about; empty: none
    subject = models.CharField(max_length=150, blank=True, default="", db_index=True)
    at = models.DateTimeField(db_index=True)
    text = models.CharField(max_length=300)
    #: uploads within a minute are one mark
    count = models.PositiveIntegerField(default=1)
    #: the page that shows more; empty: none
    link = models.CharField(max_length=200, blank=True, default="")
    #: the account whose note or change it is, as the audit log has it
    by = models.CharField(max_length=150, blank=True, default="")

    class Meta:
        ordering = ["-at", "-pk"]
