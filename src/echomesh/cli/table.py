"""`echomesh table`: small files into large ones, and away with what nobody needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from echomesh.cli.common import JsonOption, examples, say, say_json, state
from echomesh.cli.log_common import duration
from echomesh.cli.text import plural, size_text

table = typer.Typer(no_args_is_help=True)

PathArgument = Annotated[Path, typer.Argument(metavar="DIR", help="The table.", show_default=False)]


@table.command(epilog=examples("echomesh table compact ./data/tables/archive"))
def compact(path: PathArgument, as_json: JsonOption = False) -> None:
    """Turn small files into large ones, sorted. Writers and readers go on meanwhile."""
    from echomesh.spark.tables import existing_table

    state.json = as_json
    done = existing_table(path).compact()
    if as_json:
        say_json({"before": done.before, "after": done.after, "rows": done.rows, "bytes": done.bytes})
    elif done.before:
        say(f"{plural(done.before, 'file')} became {done.after}: {plural(done.rows, 'row')}, {size_text(done.bytes)}.")
    else:
        say("There is nothing to make larger.")


@table.command(epilog=examples("echomesh table vacuum ./data/tables/archive --older-than 2d"))
def vacuum(
    path: PathArgument,
    older_than: Annotated[
        str, typer.Option(metavar="TIME", help="Only what was replaced or left so long ago, as in 2d.")
    ] = "7d",
    as_json: JsonOption = False,
) -> None:
    """Remove files that were replaced, and what killed writes have left. Long reads may need them until then."""
    from echomesh.spark.tables import existing_table

    state.json = as_json
    removed = existing_table(path).vacuum(duration(older_than))
    if as_json:
        say_json({"removed": removed})
    else:
        say(f"{plural(removed, 'file')} removed.")
