"""For ``pytest -p tests.compiled.early``: what is compiled is run, before anything of it is imported."""

from __future__ import annotations

from workers import compiled

if not compiled.use():
    raise RuntimeError("not compiled")
