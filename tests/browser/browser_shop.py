"""
A shop whose version 1.8.0 cannot charge customers in Switzerland; 1.8.1 can.

Workers of the browser tests run it: `dlq work browser_shop:app`. With SHOP_BUG=iban it
fails for the first four orders of Switzerland in another way.
"""

import asyncio
import os
from typing import Any

from msgspec import Struct

from deadletter import App, Context, DLQPolicy, Fixed

VERSION = os.environ.get("SHOP_VERSION", "1.8.0")
BUG = os.environ.get("SHOP_BUG", "")

app = App(os.environ["DLQ_URL"], version=VERSION)


class Order(Struct):
    """What a customer wants."""

    id: str
    amount: int
    country: str = "DE"
    card: str = ""


@app.handler("orders", policy=DLQPolicy(max_attempts=2, backoff=Fixed(0.01)), brake=None)
async def charge(order: Order, context: Context) -> None:
    """Take the money."""
    await asyncio.sleep(0.001)
    if order.country != "CH":
        return
    if BUG == "iban" and int(order.id.rpartition("-")[2]) <= 4:
        raise KeyError("iban")
    if VERSION == "1.8.0":
        raise TimeoutError(f"the bank did not answer for order {order.id} after 30 s")


@app.handler("mails", policy=DLQPolicy(max_attempts=1), brake=None)
async def post(body: bytes) -> None:
    """Fail with whatever the message says."""
    raise RuntimeError(body[:4000].decode("utf-8", "surrogateescape"))


@app.handler("parcels", policy=DLQPolicy(max_attempts=1), brake=None)
async def ship(parcel: dict[str, Any]) -> None:
    """Fail with the name of the city."""
    if VERSION == "1.8.0":
        raise LookupError(f"no carrier for {parcel.get('city')}")
