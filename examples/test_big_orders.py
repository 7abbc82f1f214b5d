"""The test of a pipeline: real events in, real events out. Run it with `pytest examples`."""

from __future__ import annotations

from big_orders import big_orders

from echomesh import Event
from echomesh.spark import testing


def order(data: object) -> Event:
    return Event(type="order.created", source="/shop", data=data)


def test_large_orders_raise_alerts_and_what_is_no_order_is_put_aside() -> None:
    outputs = testing.run(
        big_orders,
        {
            "orders": [
                order({"id": 1, "amount": 80}),
                order({"id": 2, "amount": 1200}),
                order({"id": 3, "amount": "many"}),
            ]
        },
    )
    assert [event.data for event in outputs.topics["alerts/big-orders"]] == [
        {"id": 2, "amount": 1200.0, "topic": "orders", "offset": 1}
    ]
    (dead,) = outputs.topics["dead/orders"]
    assert dead.extensions["deadreason"] == "field amount is text, not a number"
