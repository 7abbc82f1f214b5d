"""`@pipeline`: what a pipeline is, checked when it is written down."""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

from echomesh.errors import BadPipeline, BadTopic
from echomesh.spark.pipelines.intervals import milliseconds
from echomesh.spark.pipelines.outputs import Batches, Dead, Output, Outputs, Table, Topic
from echomesh.topics import parse_filter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Function: TypeAlias = "Callable[..., DataFrame | Mapping[str, DataFrame]]"
Start: TypeAlias = Literal["earliest", "latest"]
Watermark: TypeAlias = str | tuple[str, str]

Word = TypeVar("Word", bound=str)

OUT: Final = "out"  # the name of an output that has none
ONCE: Final = "once"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_MODES: Final = ("append", "update", "complete")
_STARTS: Final = ("earliest", "latest")
_collected: Final[list[list[Pipeline]]] = []  # for those who want to know of every pipeline that is made


@dataclass(frozen=True)
class Pipeline:
    """Topics in, a function of DataFrames, topics and tables out. Called, it is its function."""

    name: str
    function: Function
    inputs: Mapping[str, str]
    outputs: Mapping[str, Output]
    trigger_ms: int | None  # None: all there is now, and then it ends
    watermark: tuple[str, int] | None = None  # column, and milliseconds
    columns: tuple[str, ...] | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    output_mode: str = "append"
    start: Start = "earliest"
    packages: tuple[str, ...] = ()
    file: str = ""
    line: int = 0

    def __call__(self, *frames: DataFrame, **named: DataFrame) -> DataFrame | Mapping[str, DataFrame]:
        """The function itself: with DataFrames that are no streams it can be tried anywhere."""
        return self.function(*frames, **named)

    def wrong(self, reason: str, line: int = 0) -> BadPipeline:
        """The error for a mistake in it."""
        return BadPipeline(self.file, line or self.line, reason)


def pipeline(
    *,
    inputs: Mapping[str, str],
    output: Outputs,
    trigger: str = "1 second",
    name: str | None = None,
    watermark: Watermark | None = None,
    columns: Sequence[str] | None = None,
    options: Mapping[str, object] | None = None,
    output_mode: Literal["append", "update", "complete"] = "append",
    start: Start = "earliest",
    packages: Sequence[str] = (),
) -> Callable[[Function], Pipeline]:
    """Makes a pipeline of a function from DataFrames to a DataFrame, or to one for each of several outputs.

    `inputs` are topics or filters by the names of the function's parameters. `trigger` is the time between batches, or
    "once". `watermark` is how late events may come: "10 seconds" by the column `time`, or ("timestamp", "10 seconds").
    With `columns` only those are read, and `options` go to the source, as in {"maxOffsetsPerTrigger": 10000}. `start`
    says where its first run begins. `packages` are what its functions import on executors, such as ["pandas"]: those
    of a cluster get them, as they are installed here.
    """
    file, line = _caller()

    def make(function: Function) -> Pipeline:
        where = _Where(file, line)
        if not callable(function):
            raise where.wrong("@pipeline stands above a function")
        at = _Where(file, getattr(getattr(function, "__code__", None), "co_firstlineno", line))
        made = Pipeline(
            where.name(name or getattr(function, "__name__", "")),
            function,
            where.inputs(inputs),
            where.outputs(output),
            where.trigger(trigger),
            where.watermark(watermark),
            where.columns(columns),
            {key: _text(value) for key, value in (options or {}).items()},
            where.one_of("output_mode", output_mode, _MODES),
            where.one_of("start", start, _STARTS),
            tuple(packages),
            at.file,
            at.line,
        )
        at.parameters(function, made.inputs)
        for found in _collected:
            found.append(made)
        return made

    return make


@contextlib.contextmanager
def collected() -> Iterator[list[Pipeline]]:
    """A list of the pipelines that are made meanwhile, also of those that another one takes the name of."""
    found: list[Pipeline] = []
    _collected.append(found)
    try:
        yield found
    finally:
        _collected.remove(found)


@dataclass(frozen=True)
class _Where:
    """Checks what stands at one place."""

    file: str
    line: int

    def wrong(self, reason: str) -> BadPipeline:
        return BadPipeline(self.file, self.line, reason)

    def name(self, name: object) -> str:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise self.wrong(
                f"{name!r} is no name of a pipeline: letters, digits and _ . - make one, as in name='orders'"
            )
        return name

    def inputs(self, inputs: object) -> dict[str, str]:
        if not isinstance(inputs, Mapping) or not inputs:
            raise self.wrong("inputs are topics or filters by name, as in inputs={'orders': 'orders/**'}")
        found = {}
        for name, text in inputs.items():
            if not isinstance(name, str) or not name.isidentifier():
                raise self.wrong(f"input {name!r} can't be a parameter of a function: give it a name in Python")
            found[name] = self._filters(name, text)
        return found

    def _filters(self, name: str, text: object) -> str:
        if not isinstance(text, str) or not text.strip():
            raise self.wrong(f"input {name!r} is {text!r}: give topics or filters, as in 'orders/**'")
        try:
            return ",".join(parse_filter(part.strip()) for part in text.split(","))
        except BadTopic as error:
            raise self.wrong(f"input {name!r}: {error}") from None

    def outputs(self, output: object) -> dict[str, Output]:
        named = output if isinstance(output, Mapping) else {OUT: output}
        for name, each in named.items():
            if not isinstance(each, Topic | Table | Dead | Batches):
                shown = f"output {name!r}" if isinstance(output, Mapping) else "output"
                raise self.wrong(f"{shown} is {each!r}: give topic('alerts') or table('orders')")
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise self.wrong(f"{name!r} is no name of an output: letters, digits and _ . - make one")
        if not named:
            raise self.wrong("there is no output: give topic('alerts') or table('orders')")
        return dict(named)

    def trigger(self, trigger: object) -> int | None:
        if trigger == ONCE:
            return None
        try:
            return milliseconds(trigger)
        except ValueError as error:
            raise self.wrong(f"trigger {error}, or 'once' for what there is now") from None

    def watermark(self, watermark: object) -> tuple[str, int] | None:
        if watermark is None:
            return None
        column, span = watermark if isinstance(watermark, tuple) and len(watermark) == 2 else ("time", watermark)
        try:
            return str(column), milliseconds(span)
        except ValueError as error:
            raise self.wrong(f"watermark {error}") from None

    def columns(self, columns: object) -> tuple[str, ...] | None:
        if columns is None:
            return None
        if isinstance(columns, str) or not isinstance(columns, Sequence):
            raise self.wrong(f"columns is a list of names, not {columns!r}")
        return tuple(columns)

    def one_of(self, what: str, value: Word, known: Sequence[str]) -> Word:
        if value not in known:
            raise self.wrong(f"{what} = {value!r} is not one of {', '.join(known)}")
        return value

    def parameters(self, function: Function, inputs: Mapping[str, str]) -> None:
        """Raises unless the function takes exactly the inputs."""
        kinds = inspect.Parameter
        found = inspect.signature(function).parameters.values()
        if any(each.kind is kinds.VAR_KEYWORD for each in found):
            return
        takes = [each.name for each in found if each.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)]
        needed = [each.name for each in found if each.default is kinds.empty and each.name not in inputs]
        if needed or any(name not in takes for name in inputs):
            raise self.wrong(
                f"the function takes {', '.join(takes) or 'nothing'}, and the inputs are {', '.join(inputs)}: "
                "the names have to be the same"
            )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _caller() -> tuple[str, int]:
    frame = sys._getframe(2)
    return shown(frame.f_code.co_filename), frame.f_lineno


def shown(file: str) -> str:
    """A path as people want to see it: from here when it is below."""
    path = Path(file)
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_absolute() and path.is_relative_to(here) else file


def at_line(error: BaseException, file: str) -> int:
    """The last line of this file that an error passed through; 0 when none."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if shown(trace.tb_frame.f_code.co_filename) == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
