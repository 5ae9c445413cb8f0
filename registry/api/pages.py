"""Pages of lists."""

import re

from rest_framework.exceptions import ValidationError
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.request import Request


class BoundedPages(LimitOffsetPagination):
    """Pagination by ``limit`` and ``offset``, at most :attr:`max_limit` rows."""

    max_limit = 1000
    limit_query_description = f"Rows of a page, from 1 on. A page has at most {max_limit}."
    offset_query_description = "Number of rows before the page, from 0 on."

    def get_limit(self, request: Request) -> int:
        return min(_number(request, self.limit_query_param, 1, self.default_limit), self.max_limit)

    def get_offset(self, request: Request) -> int:
        return _number(request, self.offset_query_param, 0, 0)

    def get_schema_operation_parameters(self, view):
        limit, offset = super().get_schema_operation_parameters(view)
        limit["schema"] |= {"minimum": 1, "default": self.default_limit}
        offset["schema"] |= {"minimum": 0, "default": 0}
        return [limit, offset]


def _number(request: Request, name: str, least: int, default: int) -> int:
    given = request.query_params.get(name)
    if given is None:
        return default
    # int() alone takes underscores, spaces and other scripts' digits, too.
    value = int(given) if re.fullmatch("[0-9]{1,300}", given) else least - 1
    if value < least:
        raise ValidationError({name: [f"must be a whole number from {least} on, not {given[:60]!r}"]})
    return value
