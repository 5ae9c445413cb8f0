"""Pages of lists."""

from rest_framework.pagination import LimitOffsetPagination


class BoundedPages(LimitOffsetPagination):
    """Pagination by ``limit`` and ``offset``, with a bounded page.

    A page has at most :attr:`max_limit` rows, however many are asked for.
    """

    max_limit = 1000
