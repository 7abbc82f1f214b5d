"""Rules of the source tree that no linter knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.repository import SOURCE, files, texts
from tests.support.rooms import offences

LONGEST = 400


def too_long(root: Path) -> Iterator[str]:
    for path in files(root):
        if path.suffix in (".py", ".pyx"):
            lines = len(path.read_text().splitlines())
            if lines > LONGEST:
                yield f"{path.relative_to(root)}: {lines} lines"


def test_no_source_file_is_longer_than_a_reader_wants() -> None:
    assert list(too_long(SOURCE)) == []


def test_a_long_file_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "long.pyx").write_text("x = 1\n" * (LONGEST + 1))
    (tmp_path / "short.py").write_text("x = 1\n" * LONGEST)
    assert list(too_long(tmp_path)) == ["long.pyx: 401 lines"]


def test_imports_follow_the_arrows_between_the_rooms() -> None:
    assert list(offences(SOURCE)) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("native/ring.pyx", "from echomesh.nukleus.layout cimport Layout"),
        ("native/ring.pyx", "from echomesh import events"),
        ("nukleus/echo.py", "from echomesh.data import beacon"),
        ("nukleus/echo.py", "from ..data.beacon import Beacon"),
        ("nukleus/echo.py", "import echomesh"),
        ("log/writer.py", "import echomesh.mesh.server"),
        ("mesh/server.py", "from echomesh.data import publisher"),
        ("spark/source.py", "from echomesh.mesh.server import Server"),
        ("spark/source.py", "from echomesh.node import Node"),
        ("node/node.py", "from echomesh.cli import main"),
        ("web/page.py", "    from echomesh.cli import main"),
        ("errors.py", "from echomesh.native import ring"),
        ("topics.py", "from .log import writer"),
        ("attic/thing.py", "from echomesh import errors"),
    ],
)
def test_an_import_against_the_arrows_is_found_out(tmp_path: Path, file: str, line: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"if True:\n{line}\n" if line.startswith(" ") else f"{line}\n")
    assert list(offences(tmp_path))


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("native/ring.pyx", "from echomesh.native.mapping cimport Mapping"),
        ("native/ring.pyx", "from echomesh.errors import RingDamaged"),
        ("nukleus/echo.py", "from . import layout"),
        ("nukleus/echo.py", "from echomesh import errors, native"),
        ("data/beacon.py", "from echomesh.native.ring import Ring"),
        ("mesh/server.py", "from ..log.writer import Writer"),
        ("spark/source.py", "from echomesh.mesh.client import Client"),
        ("cli/main.py", "from echomesh.nukleus.echo import Echo"),
        ("__init__.py", "from echomesh.data import connect"),
    ],
)
def test_an_import_along_the_arrows_is_fine(tmp_path: Path, file: str, line: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{line}\n")
    assert list(offences(tmp_path)) == []


def test_every_compiled_module_has_a_stub_beside_it() -> None:
    assert [path.name for path in SOURCE.rglob("*.pyx") if not path.with_suffix(".pyi").exists()] == []


def test_the_source_is_found_at_all() -> None:
    assert len(list(texts(SOURCE))) > 3
