"""The console at its full size.

It has 50 applications, 160 devices, a year of history and 50 open pages. :mod:`.site` starts a control plane and fills
it, :mod:`.pages` measures pages in chromium, :mod:`.readers` plays open consoles. Members are those of
:mod:`benchmarks.scale`. May import the product only where it fills the database.
"""
