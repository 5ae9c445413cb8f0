"""Pages, one module a subject; each page's least role stands in :mod:`registry.access.table`."""
