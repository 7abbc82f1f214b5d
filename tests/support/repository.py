"""The repository as text: where it is and which files are in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "echomesh"

# Made on this machine, never part of the repository. Hidden directories go too, but for .ci.
MADE = {"__pycache__", "build", "dist", "node_modules"}


def files(root: Path = ROOT) -> Iterator[Path]:
    """Every file that belongs to the repository."""
    for path in sorted(root.iterdir()):
        if path.is_symlink():
            continue
        if path.is_dir():
            hidden = path.name.startswith(".") and path.name not in (".ci", ".github")
            if not hidden and path.name not in MADE and not path.name.endswith(".egg-info"):
                yield from files(path)
        elif path.suffix not in (".so", ".pyc"):
            yield path


def texts(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Every file of the repository that is text, with its content."""
    for path in files(root):
        content = path.read_bytes()
        if b"\0" not in content:
            yield path, content.decode(errors="replace")
