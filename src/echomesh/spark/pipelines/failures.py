"""Why a query failed: the one sentence in what Spark says, and whether another try can help."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from echomesh import errors

# Another try would meet the same: somebody has to act.
_LASTING: Final = (
    errors.UsageError,
    errors.DataLoss,
    errors.FencedWriter,
    errors.NotAuthorized,
    errors.StaleWriter,
    errors.UnauthorizedPublish,
    errors.UnauthorizedSubscribe,
)
_RAISED: Final = re.compile(r"^(?P<path>(?:[A-Za-z_]\w*\.)*)(?P<name>[A-Z]\w*): (?P<text>.+)$")
_FRAME: Final = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+)')
_OWN: Final = re.compile(r"/(?:site-packages|py4j|pyspark|echomesh)/|/pyspark_echomesh\.py|^<|/lib/python3")
_NOISE: Final = re.compile(r"\s*SQLSTATE: \w+.*$")
_CONDITION: Final = re.compile(r"\[[A-Z0-9_.]+\] ")
_HEAD: Final = re.compile(r"^\[STREAM_FAILED\].*?terminated with exception: ", re.DOTALL)


@dataclass(frozen=True)
class Failure:
    """What went wrong. `lasting`: trying again would not mend it."""

    kind: str
    reason: str
    lasting: bool

    def __str__(self) -> str:
        return self.reason


def failure(text: str) -> Failure:
    """Out of the text of Spark's exception, with the traceback of Python in it."""
    whole = _HEAD.sub("", text.partition("=== Streaming Query ===")[0])
    lines = whole.splitlines()
    found = where = None
    for line in lines:
        if place := _FRAME.match(line):
            where = where if _OWN.search(place["file"]) else f"{place['file']}:{place['line']}: "
        elif raised := _RAISED.match(_NOISE.sub("", line)):
            found = raised
    if found is None:
        plain = _CONDITION.sub("", _NOISE.sub("", lines[0] if lines else "no reason given")).strip()
        return Failure("", plain, False)
    ours = getattr(errors, found["name"], None) if found["path"].startswith("echomesh.") else None
    said = f"{found['name']}: {found['text']}" if ours is None else found["text"]
    return Failure(found["name"], f"{where or ''}{said}", ours is not None and issubclass(ours, _LASTING))
