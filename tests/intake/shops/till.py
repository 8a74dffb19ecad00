"""What the tasks of every shop do: fail while it is broken, else write it down."""

import os
from pathlib import Path

HERE = Path(os.environ["SHOP"])
URL = os.environ["SHOP_URL"]


def charge(order: str) -> None:
    if (HERE / "broken").exists():
        raise ValueError(f"order {order} has no price")
    with (HERE / "charged").open("a") as charged:
        charged.write(f"{order}\n")
