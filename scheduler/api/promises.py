"""Promises and what-ifs over REST."""

from __future__ import annotations

import msgspec
from django.db import transaction
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.response import Response

from registry.api.serializers.fields import NumberField, OneOfField, StrictMixin
from registry.api.views.base import View
from registry.audit.recording import record
from scheduler.models import Promise, WhatIf
from scheduler.promises import what_if
from scheduler.promises.changes import (
    CHOICES,
    LONGEST_SLO_MS,
    MOST_DEVICES,
    MOST_RATE,
    MOST_TIMES,
    SHORTEST_SLO_MS,
    Changes,
)

#: entries of one kind of change in a request
MOST_ENTRIES = 1000


class PromiseSerializer(serializers.ModelSerializer):
    """Expected and observed figures of a plan in a window of a few seconds."""

    expected = serializers.DictField(
        help_text="By application: items_per_s, and for accuracy (normalised percent) and violations (share of items) "
        "`expected`, `interval` (holds 90% of windows) and `simulated` (the interval before its correction by past "
        "promises)."
    )
    observed = serializers.DictField(help_text="By application: items, accuracy, violations; empty until compared.")
    index = serializers.CharField(help_text="Names the state that it was made for.")

    class Meta:
        model = Promise
        fields = ["id", "created", "plan", "stack", "window_s", "windows", "wall_s", "state", "index"]
        fields += ["expected", "observed"]
        read_only_fields = fields


class ByNameField(serializers.DictField):
    default_error_messages = {"not_a_dict": "Must be an object with a value by name."}


class ChangesSerializer(StrictMixin, serializers.Serializer):
    """Imagined differences. Names are checked against the present problem."""

    demand_factor = NumberField(
        required=False, min_value=0, max_value=MOST_TIMES, help_text="Multiplies all arrivals beside those in `demand`."
    )
    demand = ByNameField(
        child=NumberField(min_value=0, max_value=MOST_RATE), required=False, help_text="Items/s by application."
    )
    slo_ms = ByNameField(
        child=NumberField(min_value=SHORTEST_SLO_MS, max_value=LONGEST_SLO_MS),
        required=False,
        help_text="By application.",
    )
    variants = ByNameField(child=OneOfField(CHOICES), required=False, help_text="By APPLICATION/VARIANT.")
    add_devices = ByNameField(
        child=serializers.IntegerField(min_value=0, max_value=MOST_DEVICES),
        required=False,
        help_text="How many more, by device type.",
    )
    remove_devices = serializers.ListField(
        child=serializers.CharField(max_length=200), required=False, help_text="Devices by name (NODE/DEVICE)."
    )
    cordon = serializers.ListField(
        child=serializers.CharField(max_length=63), required=False, help_text="Nodes whose devices plans leave out."
    )

    def validate(self, fields):
        for name, value in fields.items():
            if isinstance(value, dict | list) and len(value) > MOST_ENTRIES:
                raise serializers.ValidationError({name: [f"at most {MOST_ENTRIES} entries, and it has {len(value)}"]})
        return fields


class WhatIfSerializer(serializers.ModelSerializer):
    changes = ChangesSerializer()
    progress = serializers.FloatField(help_text="Share of the simulation that is done (0 to 1); 0: it has not begun.")
    index = serializers.CharField(help_text="Names the state that the answer is for; applying needs that same state.")
    plan = serializers.SerializerMethodField(
        help_text="The plan that would result; empty until it is made. `base`: the demand that all four answers are "
        "for, as it was `measured` at the question (ISO time) over the `seconds` before: `items_per_s` by application."
    )
    present_plan = serializers.DictField(help_text="The plan for the same demand without the changes.")
    promise = serializers.DictField(help_text="As `expected` of a promise; empty until the simulation is done.")
    present_promise = serializers.DictField(help_text="The same for `present_plan`.")
    applicable = serializers.SerializerMethodField(
        help_text="Whether some of the changes could be applied; not once it failed or was cancelled."
    )

    class Meta:
        model = WhatIf
        fields = ["id", "created", "by", "state", "progress", "error", "changes", "index", "plan", "present_plan"]
        fields += ["promise", "present_promise", "applicable", "applied"]
        read_only_fields = fields

    def get_plan(self, row: WhatIf) -> dict:
        return what_if.slim(row.plan)

    def get_applicable(self, row: WhatIf) -> bool:
        open_ = row.applied is None and row.state != WhatIf.State.FAILED
        return open_ and msgspec.convert(row.changes, Changes).applicable


class ApplySerializer(StrictMixin, serializers.Serializer):
    force = serializers.BooleanField(
        required=False,
        help_text="Also where a node to be cordoned alone has usable devices for an application, whose queries fail.",
    )


class PromiseList(View):
    serializer_class = PromiseSerializer

    @extend_schema(operation_id="promises_list", responses=PromiseSerializer(many=True))
    def get(self, request):
        return self.listed(Promise.objects.all(), PromiseSerializer)


class WhatIfList(View):
    serializer_class = WhatIfSerializer

    @extend_schema(operation_id="what_ifs_list", responses=WhatIfSerializer(many=True))
    def get(self, request):
        """List the latest what-ifs with their answers, newest first."""
        return self.listed(WhatIf.objects.all(), WhatIfSerializer)

    @extend_schema(operation_id="what_if_ask", request=ChangesSerializer, responses={202: WhatIfSerializer})
    def post(self, request):
        """Ask a what-if.

        Its plan is there within about a second, its promise some seconds later: read it by its id. Without any change
        both of its columns are alike.
        """
        fields = self.checked(ChangesSerializer)
        for name in ("remove_devices", "cordon"):
            if name in fields:
                fields[name] = tuple(sorted(set(fields[name])))
        row = what_if.ask(Changes(**fields), request.user.get_username())
        return Response(WhatIfSerializer(row).data, status=status.HTTP_202_ACCEPTED)


class WhatIfDetail(View):
    serializer_class = WhatIfSerializer

    @extend_schema(operation_id="what_if_get", responses=WhatIfSerializer)
    def get(self, request, pk: int):
        """Read a what-if with its answer, as far as there is one."""
        what_if.give_up_lost()
        return Response(WhatIfSerializer(get_object_or_404(WhatIf, pk=pk)).data)

    @extend_schema(operation_id="what_if_cancel", responses={204: OpenApiResponse(description="Cancelled.")})
    def delete(self, request, pk: int):
        """Cancel a what-if that waits or is being simulated; its state is then `failed`."""
        row = get_object_or_404(WhatIf, pk=pk)
        with transaction.atomic():
            what_if.cancel(row, request.user.get_username())
            record("cancelled", "what-if", str(row.pk), before={"by": row.by})
        return Response(status=status.HTTP_204_NO_CONTENT)


class WhatIfApply(View):
    serializer_class = None

    @extend_schema(operation_id="what_if_apply", request=ApplySerializer, responses=WhatIfSerializer)
    def post(self, request, pk: int):
        """Apply a what-if's SLOs, pinned and excluded variants, and cordons.

        The rest can only be imagined. Refused (409) where the state has changed since the answer was computed.
        """
        row, wanted = get_object_or_404(WhatIf, pk=pk), self.checked(ApplySerializer)
        return Response(WhatIfSerializer(what_if.apply(row, **wanted)).data)
