"""Pages of lists."""

from rest_framework.pagination import LimitOffsetPagination


class BoundedPages(LimitOffsetPagination):
    """Rows by ``limit`` and ``offset``; a page has at most :attr:`max_limit` rows, however many are asked for."""

    max_limit = 1000
