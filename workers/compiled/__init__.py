"""The query path's Python, compiled ahead of time by mypyc where there is a C compiler: optional, and the same code.

``python -m workers.compiled`` builds; :func:`use` has a process run what was built, if it was built from just these
sources. See ``docs/decisions/0019-the-query-path-compiled.md``.
"""

from .finder import use

__all__ = ["use"]
