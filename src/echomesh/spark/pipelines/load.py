"""Pipelines in a user's file, and what is wrong with the file when they can't be had."""

from __future__ import annotations

import ast
import os
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from echomesh.errors import BadPipeline, EchomeshError, UnknownPipeline
from echomesh.spark.pipelines.define import Pipeline, at_line, collected, shown

_PREFIX: Final = "echomesh_pipeline_"


def load(file: str | Path) -> dict[str, Pipeline]:
    """The pipelines of a file by name; `BadPipeline` names file, line and reason when there are none to be had."""
    path = Path(file)
    name = shown(str(path.absolute()))
    source = _read(path, name)
    try:
        code = compile(source, str(path.absolute()), "exec")
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 0
        raise BadPipeline(name, line, f"this is no Python: {getattr(error, 'msg', error)}") from None
    module = types.ModuleType(f"{_PREFIX}{path.stem}")
    module.__file__ = str(path.absolute())
    _make_known(module, path.absolute().parent)
    try:
        with collected() as made:
            exec(code, module.__dict__)
    except BadPipeline:
        raise
    except (Exception, SystemExit) as error:
        raise BadPipeline(name, at_line(error, name), _reason(error)) from error
    return _found([*(each for each in made if each.file == name), *vars(module).values()], name, source)


def choose(file: str | Path, name: str | None = None) -> Pipeline:
    """The pipeline of a file; with several, the one of this name."""
    found = load(file)
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    listed = ", ".join(found)
    if name is None:
        raise UnknownPipeline(
            f"{file} has {len(found)} pipelines, {listed}: choose one as in {file}:{next(iter(found))}"
        )
    if name not in found:
        raise UnknownPipeline(f"{file} has no pipeline {name}: there is {listed}")
    return found[name]


def _read(path: Path, name: str) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        raise BadPipeline(name, 0, "there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadPipeline(name, 0, f"it can't be read: {getattr(error, 'strerror', None) or error}") from None


def _make_known(module: types.ModuleType, directory: Path) -> None:
    # Its neighbours can be imported, here and by workers that start later; functions of its own travel whole.
    sys.modules[module.__name__] = module
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if str(directory) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([*paths, str(directory)])
    from pyspark.cloudpickle import register_pickle_by_value

    register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _found(values: Iterable[object], name: str, source: str) -> dict[str, Pipeline]:
    found: dict[str, Pipeline] = {}
    for each in values:
        if not isinstance(each, Pipeline) or found.get(each.name) is each:
            continue
        if each.name in found:
            first = found[each.name]
            raise each.wrong(f"there is a pipeline {each.name} in line {first.line} already: give one another name=")
        found[each.name] = each
    if not found:
        raise BadPipeline(name, *_nothing(source))
    return found


def _nothing(source: str) -> tuple[int, str]:
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    if functions:
        return functions[-1].lineno, f"there is no @pipeline above {functions[-1].name}, and no other pipeline here"
    return 1, "there is no pipeline in it: @pipeline(inputs=..., output=...) above a function makes one"


def _reason(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"{error}: is it installed here, or beside the file?"
    if isinstance(error, SystemExit):
        return "it ends Python: leave sys.exit() to a block under if __name__ == '__main__'"
    if isinstance(error, EchomeshError):
        return str(error)
    return f"{type(error).__name__}: {error}"
