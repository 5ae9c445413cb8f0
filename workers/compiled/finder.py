"""Has compiled modules imported in place of plain ones."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from .closed import FOLDER, LIBRARY, MODULES, signature


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, files: Mapping[str, Path]):
        self._files = files

    def find_spec(self, name, path, target=None) -> importlib.machinery.ModuleSpec | None:
        file = self._files.get(name)
        return None if file is None else importlib.util.spec_from_file_location(name, file)


def use() -> bool:
    """Import what is compiled from now on. False, and all stays plain, where nothing was built from these very sources
    for this interpreter, or it cannot be read or loaded.

    Raises:
        RuntimeError: some of it was imported already.
    """
    early = [name for name in MODULES if name in sys.modules]
    if early:
        raise RuntimeError(f"imported too early: {', '.join(early)}")
    try:
        if not FOLDER.is_dir():
            return False
        folder = FOLDER / signature()
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        files = {name: folder / (name.replace(".", "/") + suffix) for name in (LIBRARY, *MODULES)}
        if not all(file.is_file() for file in files.values()):
            return False
    except OSError:
        # Another user's, who keeps it private, or it is just being changed.
        return False
    finder = _Finder(files)
    sys.meta_path.insert(0, finder)
    try:
        __import__(LIBRARY)
    except ImportError:
        sys.meta_path.remove(finder)
        return False
    return True
