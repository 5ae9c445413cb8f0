"""Parts that several serializers share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from django.utils import timezone
from rest_framework import serializers


def one_of(names: Iterable[str]) -> dict[str, str]:
    """The error message of a choice among these."""
    return {"invalid_choice": '"{input}" is not one of ' + ", ".join(names) + "."}


class StrictMixin:
    """Rejects fields that do not exist or may not be set.

    Attributes:
        RETIRED: fields of the release before, which are ignored, and what holds instead.
        warnings: lines about such fields in this request.
    """

    RETIRED: ClassVar[Mapping[str, str]] = {}

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, Mapping):
            # It says that this must be an object.
            return super().to_internal_value(data)
        self.warnings = [f"{name}: ignored; {instead}" for name, instead in self.RETIRED.items() if name in data]
        wrong = {}
        for name in data:
            if name in self.RETIRED:
                continue
            field = self.fields.get(name)
            if field is None:
                settable = [known for known, f in self.fields.items() if not f.read_only]
                near = difflib.get_close_matches(str(name), settable, n=1)
                wrong[str(name)[:60]] = [f"is not known{f'; did you mean {near[0]}?' if near else ''}"]
            elif field.read_only:
                wrong[name] = ["cannot be set"]
        if wrong:
            raise serializers.ValidationError(wrong)
        return super().to_internal_value(data)


class NumberField(serializers.FloatField):
    """A number; ``true`` is none, though Python would take it for 1."""

    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool):
            self.fail("invalid")
        return super().to_internal_value(data)


class ExpiryField(serializers.DateTimeField):
    """When something ends: in the future, with a time zone or in UTC; null: never."""

    def to_internal_value(self, value: Any) -> Any:
        parsed = super().to_internal_value(value)
        if parsed <= timezone.now():
            raise serializers.ValidationError("must be in the future")
        return parsed


def warnings_field() -> serializers.ListField:
    """Warnings of a change: a line for each field of the request that was ignored or replaced."""
    return serializers.ListField(
        child=serializers.CharField(),
        read_only=True,
        help_text="A line for each field of the request that is retired: what was done with it.",
    )
