"""`echomesh log`: the topic log in a data directory, read and written by hand."""

from __future__ import annotations

import typer

from echomesh.cli.common import examples
from echomesh.cli.log_compact import compact
from echomesh.cli.log_export import export
from echomesh.cli.log_list import ls, stats
from echomesh.cli.log_read import cat, tail
from echomesh.cli.log_verify import verify
from echomesh.cli.log_write import append

log = typer.Typer(no_args_is_help=True)

log.command(
    epilog=examples(
        "echomesh log ls --data ./data",
        "echomesh log ls 'sensors/**' --json | jq '.topics[].next'",
    )
)(ls)
log.command(
    epilog=examples(
        "echomesh log cat orders --from -10           the last ten",
        "echomesh log cat orders --since 15m | jq .event.data",
        "echomesh log cat orders --since 2026-07-01T12:00:00Z --until 2026-07-01T13:00:00Z",
    )
)(cat)
log.command(
    epilog=examples(
        "echomesh log tail orders --last 0            only what is new",
        "echomesh log tail 'sensors/*/temperature' alarms",
    )
)(tail)
log.command(
    epilog=examples(
        "echomesh log append orders '{\"id\": 7}' --type order.created --source /shop",
        "echomesh log append photos --file cat.jpg",
        "journalctl -o json -f | echomesh log append journal",
        "echomesh log cat orders --data ./old | echomesh log append orders --events --data ./new",
    )
)(append)
log.command(
    epilog=examples(
        "echomesh log verify --data ./data",
        "echomesh log verify orders --json | jq .corrupt",
    )
)(verify)
log.command(
    epilog=examples(
        "echomesh log stats --data ./data",
        "echomesh log stats orders --window 10        with its segments and indexes",
    )
)(stats)
log.command(
    epilog=examples(
        "echomesh log export orders -o orders.parquet",
        "echomesh log export 'sensors/**' --since 1d -o day.arrow",
        "echomesh log export orders --columns offset,type,data -o orders.parquet --force",
    )
)(export)
log.command(
    epilog=examples(
        "echomesh log compact --data ./data",
        "echomesh log compact 'sensors/**' --older-than 7d",
    )
)(compact)
