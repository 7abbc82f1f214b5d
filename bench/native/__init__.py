"""The compiled checker, no part of the product: built into build/bench when it is first imported."""

from __future__ import annotations

from bench.native.build import built

# The extension lies in the build directory, its stub here: this makes them one module.
__path__.append(str(built()))
