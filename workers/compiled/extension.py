"""Compiles the sources that it is of, and has what came of it imported: ``python -m workers.compiled.extension``, in a
copy of them."""

from __future__ import annotations

import importlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from .closed import FOLDER, LIBRARY, MODULES, signature, source
from .finder import use


def main() -> None:
    # These belong to the build alone.
    from mypyc.build import mypycify
    from setuptools import setup
    from setuptools.command.build_ext import build_ext

    class SideBySide(build_ext):
        """Compiles as many files at once as there are cores."""

        def build_extensions(self):
            one_by_one = self.compiler.compile

            def compile_all(sources, *arguments, **named):
                with ThreadPoolExecutor(os.cpu_count()) as threads:
                    made = threads.map(lambda one: one_by_one([one], *arguments, **named), sources)
                    return [file for files in made for file in files]

            self.compiler.compile = compile_all
            super().build_extensions()

    extensions = mypycify(
        ["--config-file", "workers/compiled/mypy.ini", *(str(source(name)) for name in MODULES)],
        # More than -O1 takes twice as long to compile and gains two percent.
        opt_level="1",
        debug_level="0",
        multi_file=True,
        group_name=LIBRARY.removesuffix("__mypyc"),
    )
    setup(
        name="nereus-query-path",
        ext_modules=extensions,
        packages=[],
        cmdclass={"build_ext": SideBySide},
        script_args=["-q", "build_ext", "--build-lib", str(FOLDER / signature()), "--build-temp", "objects"],
    )
    # What a compiler lets pass may fail when it is imported, and a gateway could not go back to plain Python by then.
    if not use():
        sys.exit("what was compiled cannot be loaded")
    for name in MODULES:
        importlib.import_module(name)


if __name__ == "__main__":
    main()
