"""Size classes of an application, which are booked like applications by themselves: what they are called. Pure."""

from __future__ import annotations

#: stands in no application's name
_SEPARATOR = "\x1f"


def class_of(application: str, size: int) -> str:
    """A size class; 0, the one that any query may belong to, is called as the application."""
    return f"{application}{_SEPARATOR}{size}" if size else application


def owner_of(name: str) -> str:
    """The application to which a size class belongs."""
    return name.partition(_SEPARATOR)[0]
