"""The compiled core: every .pyx file under src/echomesh/native is one extension module."""

import os
import runpy
from pathlib import Path

from Cython.Build import cythonize
from Cython.Compiler.Errors import CompileError
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCE = Path("src")
NATIVE = SOURCE / "echomesh" / "native"
DIRECTIVES = {"language_level": 3, "boundscheck": False, "wraparound": False, "cdivision": True}

# No -march=native: a wheel runs on other machines than the one that built it.
# -fwrapv: positions in shared files may be anything, and sums of them must not be undefined.
# -g0: names of functions are all that profilers need, and lines would take half as long again to compile.
COMPILE_ARGS = ["-O3", "-g0", "-std=gnu11", "-fwrapv", "-Wall"]


def extensions() -> list[Extension]:
    """One extension for each .pyx; an edited header, .pxd or build script rebuilds them all."""
    shared = sorted(str(path) for suffix in ("pxd", "h") for path in NATIVE.rglob(f"*.{suffix}"))
    return [
        Extension(
            ".".join(source.relative_to(SOURCE).with_suffix("").parts),
            [str(source)],
            include_dirs=[str(NATIVE)],
            depends=["setup.py", *shared],
            extra_compile_args=COMPILE_ARGS,
        )
        for source in sorted(NATIVE.rglob("*.pyx"))
    ]


class BuildExtensions(build_ext):
    """Translates the Cython sources when they are built, not each time that metadata is asked for."""

    def finalize_options(self) -> None:
        """Check the toolchain, translate to C beside the objects, and leave the source tree clean."""
        missing = runpy.run_path("tools/toolchain.py")["missing"]()
        if missing:
            raise SystemExit(missing)
        try:
            self.distribution.ext_modules = cythonize(
                extensions(),
                build_dir="build/cython",
                include_path=[str(SOURCE)],
                compiler_directives=DIRECTIVES,
                nthreads=2,
                quiet=True,
            )
        except CompileError as error:
            raise SystemExit(f"{error} is not valid Cython, as said above") from None
        super().finalize_options()


# make compiles in a step of its own, only what changed; an editable install compiles everything, each time.
WITHOUT_NATIVE = os.environ.get("ECHOMESH_BUILD_WITHOUT_NATIVE") == "1"

setup(
    ext_modules=[] if WITHOUT_NATIVE else extensions(),
    cmdclass={"build_ext": BuildExtensions},
    options={"build_ext": {"parallel": 2}},
)
