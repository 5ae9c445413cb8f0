"""Pages, one module a subject. Each page's least role stands in :mod:`registry.access.table`."""
