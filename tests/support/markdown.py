"""Reads Markdown as its readers do: follows its links and runs its Python examples.

    python -m tests.support.markdown FILE ...

runs the ```python blocks of a file, one after the other in one name space, as one who types them
in. `await` works at the top level. A block whose info string says `no-run` is only shown. Of several files, each has
names of its own; the working directory is the same.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^(?P<indent> *)(?P<marks>`{3,}|~{3,})(?P<info>[^`\n]*)$")
_LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: the words after the fence, its text, and the line its text begins on."""

    info: tuple[str, ...]
    code: str
    line: int

    @property
    def runs(self) -> bool:
        return self.info[:1] == ("python",) and "no-run" not in self.info


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a Markdown text; one that is never closed ends with the text."""
    opened: re.Match[str] | None = None
    lines: list[str] = []
    start = 0
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line)
        if opened is None:
            if fence:
                opened, lines, start = fence, [], number + 1
        elif fence and not fence["info"].strip() and fence["marks"].startswith(opened["marks"]):
            yield _block(opened, lines, start)
            opened = None
        else:
            lines.append(line.removeprefix(opened["indent"]))
    if opened is not None:
        yield _block(opened, lines, start)


def _block(opened: re.Match[str], lines: list[str], start: int) -> Block:
    return Block(tuple(opened["info"].split()), "\n".join(lines) + "\n", start)


def without_blocks(text: str) -> str:
    """The prose alone: fenced blocks and code spans left out, where nothing is a link."""
    kept: list[str] = []
    opened: str | None = None
    for line in text.splitlines():
        fence = _FENCE.match(line)
        if opened is None and fence:
            opened = fence["marks"]
        elif opened is None:
            kept.append(re.sub(r"`[^`]*`", "", line))
        elif fence and not fence["info"].strip() and fence["marks"].startswith(opened):
            opened = None
    return "\n".join(kept)


def links(text: str) -> list[str]:
    """The targets of all links of a Markdown text."""
    return _LINK.findall(without_blocks(text))


def anchors(text: str) -> set[str]:
    """The names that a link can point at inside a file: its headings, as they are spelt in addresses."""
    prose = re.sub(r"^(`{3,}|~{3,}).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in _HEADING.findall(prose)}


def broken_links(path: Path) -> list[str]:
    """The links of one file that lead nowhere in the repository. Other sites are not asked."""
    text = path.read_text()
    broken = []
    for target in links(text):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        name, _, anchor = target.partition("#")
        file = path.parent / name if name else path
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file.read_text())):
            broken.append(target)
    return broken


async def _run(path: Path) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(path.read_text()):
        if not block.runs:
            continue
        # Empty lines in front make a traceback point into the Markdown file.
        source = "\n" * (block.line - 1) + block.code
        result = eval(compile(source, str(path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.isawaitable(result):
            await result


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        asyncio.run(_run(Path(argument)))
