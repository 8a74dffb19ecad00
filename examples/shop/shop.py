"""
A small shop whose orders fail in instructive ways.

    dlq work shop:app          runs these handlers
    python demo.py             does that, sends orders, and shows what happens
"""

import asyncio
import os
from pathlib import Path

import msgspec
from msgspec import Struct

from deadletter import App, BrakePolicy, Context, DLQPolicy, Exponential, Rule, Trouble
from deadletter.core.events import Event
from deadletter.core.failure.rules import DEFAULT

HERE = Path(os.environ.get("SHOP_DIR", "."))
OUTAGE = HERE / "outage"  # while this file exists, the carrier is down


def tell(event: Event) -> None:
    """Note what happens where the demo's board can see it."""
    if NOTEBOOK is not None:
        with Path(NOTEBOOK).open("ab") as notebook:
            notebook.write(msgspec.json.encode(event) + b"\n")


NOTEBOOK = os.environ.get("SHOP_EVENTS")
VERSION = os.environ.get("SHOP_VERSION", "1.7")
app = App(f"sqlite:///{HERE}/shop.db", version=VERSION, observe=tell)


class Order(Struct):
    """What a customer wants."""

    id: str
    amount: int
    kind: str = "plain"


class Shipment(Struct):
    """A parcel to be handed to the carrier."""

    order: str
    city: str


class InsufficientFunds(Exception):
    """The bank said no, and will keep saying so."""


BANK = Rule(
    id="bank-refusals",
    types=(InsufficientFunds,),
    trouble=Trouble.PERMANENT,
    code="INSUFFICIENT_FUNDS",
)
PATIENT = DLQPolicy(
    max_attempts=3,
    backoff=Exponential(0.5, factor=2, jitter=0.2),
    classifier=DEFAULT.extended(BANK),
)


# Letters of a bug are what this shop is for; otherwise the brake would hold them back.
@app.handler("orders", policy=PATIENT, brake=BrakePolicy(systemic=False), lease=3.0)
async def charge(order: Order, context: Context) -> None:
    """Take the money."""
    await asyncio.sleep(0.02)
    if order.kind == "flaky" and context.attempt < 3:
        raise TimeoutError(f"the bank did not answer for order {order.id}")
    if order.kind == "broke":
        raise InsufficientFunds(f"insufficient funds for order {order.id}")
    if order.kind == "bug" and VERSION == "1.7":  # fixed in 1.8
        raise KeyError("vat_rate")
    if order.kind == "killer":
        os._exit(1)  # a segfault in some C library would look the same


@app.handler(
    "shipments",
    policy=DLQPolicy(max_attempts=4, backoff=Exponential(0.5)),
    brake=BrakePolicy(threshold=5, probe_after=0.5, cap=2.0),
    lease=3.0,
    slots=5,
)
async def ship(shipment: Shipment) -> None:
    """Hand a parcel to the carrier."""
    await asyncio.sleep(0.02)
    if OUTAGE.exists():
        raise ConnectionRefusedError("connection refused: carrier.example:443")
