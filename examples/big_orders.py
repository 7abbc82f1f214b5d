"""Large orders raise alerts, and what is no order goes to dead letters.

    echomesh up --data ./data
    echomesh pub orders/eu '{"id": 7, "amount": 1200}'
    echomesh pipeline run examples/big_orders.py --data ./data --server 127.0.0.1:4889 --client me --password-file pw

Without a server that writes to the log, `--data` alone will do. `test_big_orders.py` beside it is its test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomesh.spark import dead_letters, parse_json, pipeline, topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDER = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "amount": {"type": "number", "minimum": 0}},
    "required": ["id", "amount"],
}


@pipeline(
    inputs={"orders": "orders/**"},
    output={"alerts": topic("alerts/big-orders"), "dead": dead_letters()},
    trigger="1 second",
)
def big_orders(orders: DataFrame) -> dict[str, DataFrame]:
    parsed = parse_json(orders, ORDER)
    large = parsed.good.where("amount > 1000").select("id", "amount", "topic", "offset")
    return {"alerts": large, "dead": parsed.bad}
