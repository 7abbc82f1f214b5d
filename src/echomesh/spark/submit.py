"""What a cluster needs to run tasks of ours: an archive that executors unpack, with nothing installed there before.

    from echomesh.spark import session, submit

    deps = submit.archive("deps.tar.gz")
    spark = session("alerts", master="spark://host:7077", config=submit.config(deps))

Compiled modules can't be imported from `--py-files`, but from an unpacked archive they can.
"""

from __future__ import annotations

import importlib.util
import io
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from typing import Final

from echomesh.errors import UsageError
from echomesh.spark.jars import CHECKPOINTS, SETTING, added

NAME: Final = "deps"
NEEDED: Final = ("msgspec", "typing_extensions")
ARROW: Final = "pyarrow"
_LEFT_OUT: Final = ("__pycache__", "tests", "include", "src", "includes")
_OURS: Final = ("echomesh", "pyspark_echomesh")
_ROOMS: Final = ("cli", "web", "node", "nukleus", "data")  # no task needs them

_NAMED: Final = re.compile(r"[\w.-]+")

File = tuple[str, bytes]


def archive(
    target: str | Path,
    *,
    wheels: Sequence[str | Path] = (),
    arrow: bool = True,
    packages: Sequence[str] = (),
    python: str | None = None,
) -> Path:
    """Makes the archive: echomesh, what it needs, and PyArrow unless the cluster has it (`arrow=False`).

    It is made of what is installed here, which suits a cluster with this version of Python. For another one, give the
    `wheels` for it, all of them, and its `python` such as "3.12"; `pip download --python-version` gets them. `packages`
    are others that your tasks import, such as "pandas"; what these need comes with them.
    """
    path = Path(target)
    if not path.name.endswith(".tar.gz"):
        raise UsageError(f"{str(path)!r} has to end in .tar.gz, so that Spark unpacks it")
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not wheels and python not in (None, here):
        raise UsageError(f"what is installed here is for Python {here}: give the wheels for {python}")
    files = _of_wheels([Path(wheel) for wheel in wheels], python or here) if wheels else _of_here(arrow, packages)
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, files)
    return path


def config(made: str | Path) -> dict[str, str]:
    """Settings of a session that ships the archive."""
    return {
        "spark.archives": f"{Path(made).absolute()}#{NAME}",
        "spark.executorEnv.PYTHONPATH": f"./{NAME}",
    }


def arguments(made: str | Path) -> list[str]:
    """The same for `spark-submit`."""
    found = config(made)
    settings = {"spark.executorEnv.PYTHONPATH": found["spark.executorEnv.PYTHONPATH"]}
    jars = str(added({}).get(SETTING, ""))
    if jars:
        settings |= CHECKPOINTS
    told = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    return ["--archives", found["spark.archives"], *told, *(["--jars", jars] if jars else [])]


def _of_here(arrow: bool, packages: Sequence[str]) -> Iterator[File]:
    for name in _OURS:
        yield from _module(name)
    for name in dict.fromkeys((*NEEDED, *((ARROW,) if arrow else ()), *_with_needs(packages))):
        yield from _installed(name)


def _with_needs(packages: Sequence[str]) -> Iterator[str]:
    found, left = set[str](), list(packages)
    while left:
        name = left.pop().lower().replace("_", "-")
        if name in found:
            continue
        found.add(name)
        yield name
        for need in _distribution(name).requires or ():
            # "numpy>=1.26; python_version >= '3.11'": those for other versions of Python may not be here.
            other, _, condition = need.partition(";")
            if "extra" not in condition and (match := _NAMED.match(other)) and _is_here(match[0]):
                left.append(match[0])


def _is_here(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _module(name: str) -> Iterator[File]:
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise UsageError(f"{name} can't be found: is echomesh installed?")
    origin = Path(found.origin)
    if origin.name != "__init__.py":
        yield origin.name, origin.read_bytes()
        return
    root = origin.parent
    for path in sorted(root.rglob("*")):
        inner = path.relative_to(root)
        if path.is_file() and path.suffix in (".py", ".so") and _wanted(inner.parts) and inner.parts[0] not in _ROOMS:
            yield str(PurePosixPath(name, *inner.parts)), path.read_bytes()


def _distribution(name: str) -> Distribution:
    if not _is_here(name):
        raise UsageError(f"{name} is not installed here: pip install 'echomesh[spark]', or {name} itself")
    return distribution(name)


def _installed(name: str) -> Iterator[File]:
    for file in _distribution(name).files or ():
        path = Path(str(file.locate()))
        if _wanted(file.parts) and path.is_file() and path.suffix != ".h" and ".." not in file.parts:
            yield str(PurePosixPath(*file.parts)), path.read_bytes()


def _wanted(parts: Iterable[str]) -> bool:
    return not any(part in _LEFT_OUT for part in parts)


def _of_wheels(wheels: Sequence[Path], python: str) -> Iterator[File]:
    tag = f"cp{python.replace('.', '')}"
    named = {wheel.name.split("-")[0].lower() for wheel in wheels}
    if missing := {"echomesh", *NEEDED} - named:
        raise UsageError(f"no wheel of {', '.join(sorted(missing))} is among those given")
    for wheel in wheels:
        tags = wheel.stem.split("-")[-3:]
        if wheel.suffix != ".whl" or not (tag in tags[0] or "abi3" in tags[1] or tags[0].startswith("py3")):
            raise UsageError(f"{wheel.name} is no wheel for Python {python}")
        with zipfile.ZipFile(wheel) as packed:
            for info in packed.infolist():
                parts = PurePosixPath(info.filename).parts
                if not info.is_dir() and _wanted(parts) and ".." not in parts:
                    yield info.filename, packed.read(info)


def _write(path: Path, files: Iterable[File]) -> None:
    fresh = path.with_name(f"{path.name}.new")
    with tarfile.open(fresh, "w:gz", compresslevel=1) as packed:
        for name, data in files:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            packed.addfile(entry, io.BytesIO(data))
    fresh.rename(path)
