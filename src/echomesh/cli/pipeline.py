"""`echomesh pipeline`: data pipelines on Spark, run and looked after."""

from __future__ import annotations

import typer

from echomesh.cli.common import examples
from echomesh.cli.pipeline_list import ls, status, stop
from echomesh.cli.pipeline_retry import retry_dead
from echomesh.cli.pipeline_run import run

pipeline = typer.Typer(no_args_is_help=True)

pipeline.add_typer(run, name="run")
pipeline.command(
    epilog=examples("echomesh pipeline ls --data ./data", "echomesh pipeline ls --json | jq '.pipelines[].state'")
)(ls)
pipeline.command(
    epilog=examples(
        "echomesh pipeline status big_orders --data ./data", "echomesh pipeline status archive --json | jq .why"
    )
)(status)
pipeline.command(epilog=examples("echomesh pipeline stop big_orders --data ./data"))(stop)
pipeline.command(
    "retry-dead",
    epilog=examples(
        "echomesh pipeline retry-dead --data ./data",
        "echomesh pipeline retry-dead 'orders/**' --server mesh:4889 --client spark --password-file pw --home .",
    ),
)(retry_dead)
