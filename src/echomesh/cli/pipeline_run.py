"""`echomesh pipeline run`: a user's pipeline, or a ready one with its own options."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from echomesh.cli.common import examples, say, state, stoppable
from echomesh.cli.pipeline_options import Given, text
from echomesh.errors import UsageError
from echomesh.spark.pipelines import ready

if TYPE_CHECKING:
    from echomesh.spark.pipelines.define import Pipeline
    from echomesh.spark.pipelines.place import Place


class RunGroup(TyperGroup):
    """A command for each ready pipeline, and one for whatever file is named."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The ready ones."""
        return list(ready.names())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The one of this name, or of this file."""
        known = ready.names()
        if cmd_name in known:
            return _command(cmd_name, _ready(cmd_name), known[cmd_name])
        return _command(cmd_name, _users(cmd_name), f"Run the pipeline in {cmd_name}.")


def _command(name: str, function: Callable[..., None], help: str) -> Any:
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    app.command(name, help=help, context_settings={"help_option_names": ["-h", "--help"]})(function)
    return typer.main.get_command(app)


def _users(target: str) -> Callable[..., None]:
    def command(**given: Any) -> None:
        file, colon, name = target.rpartition(":")
        if not colon:
            file, name = target, ""
        if not target.endswith(".py") and not Path(file).exists() and "/" not in target:
            known = ", ".join(ready.names()) or "none"
            raise UsageError(f"{target} is neither a file nor a ready pipeline: those are {known}")
        from echomesh.spark.pipelines.load import choose

        _run(lambda: choose(file, name or None), Given(**given), target, [])

    return _signed(command, [])


def _ready(name: str) -> Callable[..., None]:
    module = ready.module(name)
    fields = ready.fields(module.Options)
    start = getattr(module, "start", None)

    def command(**given: Any) -> None:
        own = {each.name: given.pop(each.name) for each in fields}
        if start is not None:
            from echomesh.cli.pipeline_once import once

            return once(name, start, module.Options(**own), Given(**given))
        words = [word for each in fields for word in _words(each, own[each.name])]
        _run(lambda: module.make(module.Options(**own)), Given(**given), name, words)

    return _signed(command, fields)


def _words(field: ready.Field, value: Any) -> list[str]:
    if value == field.default:
        return []
    flag = f"--{field.name.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    values = value if isinstance(value, list | tuple) else [value]
    return [word for each in values for word in (flag, str(each))]


def _signed(command: Callable[..., None], fields: list[ready.Field]) -> Callable[..., None]:
    """Gives a function the parameters that the command line is to have: those of all, and its own."""
    own = [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=each.default,
            annotation=Annotated[each.kind, typer.Option(help=each.help, metavar=each.metavar)],
        )
        for each in fields
    ]
    shared = inspect.signature(Given, eval_str=True).parameters.values()
    parameters = [*own, *(each for each in shared if each.name not in {one.name for one in own})]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # mypy knows no such functions
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _run(find: Callable[[], Pipeline], given: Given, target: str, own: list[str]) -> None:
    state.json = given.as_json
    if given.print_submit:
        from echomesh.cli.pipeline_submit import commands

        say(commands(target, own, given, find().packages))
        return
    from echomesh.cli.pipeline_view import shown
    from echomesh.spark.pipelines.runner import RunOptions, run

    place = place_of(given)
    chosen = find()
    options = RunOptions(
        once=given.once,
        start=None if given.start is None else _moment(given.start),
        new_checkpoint=given.new_checkpoint,
        metrics=given.metrics,
        restarts=given.restarts,
    )
    with stoppable() as asked:
        stop = threading.Event()
        asked.then(stop.set)
        with shown(given.as_json) as tell:
            run(chosen, place, options, stop=stop, tell=tell)


def place_of(given: Given) -> Place:
    """Where the pipeline is at home."""
    from echomesh.spark.pipelines.place import Place

    config = {}
    for setting in given.settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"--conf {setting}: write KEY=VALUE")
        config[key.strip()] = value
    return Place(
        data=text(given.data),
        server=given.server,
        client_id=given.client,
        password_file=text(given.password_file),
        environment=given.environment,
        home=text(given.home),
        tables=given.tables,
        checkpoint=given.checkpoint,
        master=given.master,
        shared=given.shared,
        config=config,
    )


def _moment(text: str) -> str:
    from echomesh.cli.log_common import moment

    return str(moment(text) // 1_000_000)  # the source takes milliseconds


run = typer.Typer(
    cls=RunGroup,
    no_args_is_help=True,
    subcommand_metavar="NAME|FILE [OPTIONS]",
    help="Run a pipeline in the foreground: one of your own in a FILE, or a ready one by NAME. "
    "[bold]FILE:NAME[/bold] chooses one of several in a file.",
    epilog=examples(
        "echomesh pipeline run big_orders.py --data ./data",
        "echomesh pipeline run orders.py:late --data ./data --once",
        "echomesh pipeline run big_orders.py --server mesh:4889 --client spark --password-file pw --master spark://host:7077",
    ),
)


@run.callback()
def _nothing() -> None:
    """Nothing: all is in the commands."""
