"""Parts that several serializers share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from datetime import MAXYEAR
from typing import Any

from django.utils import timezone
from rest_framework import serializers


class OneOfField(serializers.ChoiceField):
    def __init__(self, choices: Iterable[Any], **kwargs: Any):
        super().__init__(choices, **kwargs)
        self.error_messages["invalid_choice"] = '"{input}" is not one of ' + ", ".join(map(str, self.choices)) + "."


class StrictMixin:
    #: for choices of models' fields
    serializer_choice_field = OneOfField

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, Mapping):
            # It says that this must be an object.
            return super().to_internal_value(data)
        wrong = {}
        for name in data:
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
    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool):
            self.fail("invalid")
        return super().to_internal_value(data)


class PercentField(NumberField):
    """A percentage; up to 1, a fraction by mistake mostly, it needs its sign."""

    def to_internal_value(self, data: Any) -> float:
        signed = isinstance(data, str) and data.rstrip().endswith("%")
        value = super().to_internal_value(data.rstrip()[:-1] if signed else data)
        if 0 < value <= 1 and not signed:
            raise serializers.ValidationError(
                f"is in percent, and {value:g} is at most one percent; did you mean {100 * value:g}? "
                f'Write "{value:g}%" (with the sign) if it really is that little.'
            )
        return value


class CountLimitField(serializers.IntegerField):
    def __init__(self, **kwargs: Any):
        super().__init__(allow_null=True, required=False, min_value=1, max_value=1_000_000, **kwargs)


class ExpiryField(serializers.DateTimeField):
    """An expiry: in the future, with a time zone or in UTC; null: never."""

    def to_internal_value(self, value: Any) -> Any:
        parsed = super().to_internal_value(value)
        if parsed <= timezone.now():
            raise serializers.ValidationError("must be in the future")
        if parsed.year >= MAXYEAR:
            # In the zones of some browsers, in which the admin site shows it, its last day is of no year any more.
            raise serializers.ValidationError(f"must be before the year {MAXYEAR}; null: never")
        return parsed
