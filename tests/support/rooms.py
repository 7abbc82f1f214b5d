"""The arrows between the rooms of src/echomesh: which may import which."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

# Everybody may use these, and they use nothing of echomesh.
GROUND = {"errors", "_version"}

# What the others may import besides themselves and the ground; a dotted name is one module of a room.
_MODEL = {"events", "frames", "topics"}
USES = {
    "native": set[str](),
    "events": {"native"},
    "topics": {"native"},
    "frames": set[str](),
    "nukleus": _MODEL | {"native"},
    "data": _MODEL | {"native", "nukleus"},
    "log": _MODEL | {"native"},
    "mesh": _MODEL | {"native", "log"},
    "spark": _MODEL | {"native", "log", "mesh.client", "mesh.direct", "mesh.bodies", "mesh.log_bodies", "mesh.codes"},
    "node": _MODEL | {"native", "nukleus", "data", "log", "mesh"},
    "web": _MODEL | {"native", "nukleus", "data", "log", "mesh", "node"},
    "cli": _MODEL | {"native", "nukleus", "data", "log", "mesh", "node", "web", "spark"},
}

# `from echomesh.x cimport y`, `cimport echomesh.x` and the import forms, in files that `ast` can't read.
_CYTHON = re.compile(
    r"^\s*(?:from\s+(?P<base>\.*[\w.]*)\s+c?import\s+\(?(?P<names>[\w ,*]*)|c?import\s+(?P<whole>[\w., ]+))",
    re.MULTILINE,
)


def offences(source: Path) -> Iterator[str]:
    """Every import of the tree that goes against the arrows."""
    for path in sorted(source.rglob("*")):
        if path.suffix not in (".py", ".pyi", ".pyx", ".pxd") or "__pycache__" in path.parts:
            continue
        parts = path.relative_to(source).with_suffix("").parts
        room = parts[0]
        known = room in USES or room in GROUND
        if len(parts) == 1 and not known:
            continue  # the face: __init__, __main__, sync; it shows what all rooms offer
        if not known:
            yield f"{path.relative_to(source)}: {room} is not a room that the arrows know"
            continue
        for target in imports(path, ("echomesh", *parts)):
            if not _allowed(room, target):
                yield f"{path.relative_to(source)}: imports {'.'.join(target)}"


def _allowed(room: str, target: tuple[str, ...]) -> bool:
    if target[0] != "echomesh":
        return True
    if len(target) == 1:
        return False  # the face stands on the rooms, so no room imports it
    if target[1] == room or target[1] in GROUND:
        return True
    uses = USES.get(room, set())
    return target[1] in uses or ".".join(target[1:3]) in uses


def imports(path: Path, module: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The modules a file imports, absolute. `from a import b` counts as a.b, whatever b is."""
    package = module[:-1]  # also right for __init__, whose own name stands last
    if path.suffix in (".py", ".pyi"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield tuple(alias.name.split("."))
            elif isinstance(node, ast.ImportFrom):
                base = _absolute(package, node.level, node.module or "")
                for alias in node.names:
                    yield (*base, alias.name)
    else:
        for found in _CYTHON.finditer(path.read_text()):
            if found["whole"]:
                for name in found["whole"].split(","):
                    yield tuple(name.split()[0].split("."))
            else:
                dotted = found["base"].lstrip(".")
                base = _absolute(package, len(found["base"]) - len(dotted), dotted)
                for name in found["names"].split(",") if found["names"].strip() else ["?"]:
                    yield (*base, (name.split() or ["?"])[0])


def _absolute(package: tuple[str, ...], level: int, dotted: str) -> tuple[str, ...]:
    base = package[: len(package) - level + 1] if level else ()
    return (*base, *(part for part in dotted.split(".") if part))
