"""Compiles the sources below the current folder: ``python -m workers.compiled.extension OUT``, in a copy of them."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

from .closed import LIBRARY, MODULES, source


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
        script_args=["-q", "build_ext", "--build-lib", sys.argv[1], "--build-temp", "objects"],
    )


if __name__ == "__main__":
    main()
