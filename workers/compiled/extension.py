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
    from setuptools._distutils.ccompiler import CCompiler

    compile_all = CCompiler.compile

    def compile_side_by_side(self, sources, *arguments, **named):
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            made = threads.map(lambda one: compile_all(self, [one], *arguments, **named), sources)
            return [made for some in made for made in some]

    CCompiler.compile = compile_side_by_side
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
        script_args=["-q", "build_ext", "--build-lib", sys.argv[1], "--build-temp", "objects"],
    )


if __name__ == "__main__":
    main()
