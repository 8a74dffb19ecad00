"""What the tasks of every shop do: fail while it is broken, else write it down."""

import os
from pathlib import Path

HERE = Path(os.environ["SHOP"])
URL = os.environ["SHOP_URL"]
KIND = os.environ["SHOP_KIND"]  # of queues, where there are several


def charge(order: str) -> None:
    with (HERE / "tried").open("a") as tried:
        tried.write(f"{order}\n")
    if (HERE / "broken").exists():
        raise ValueError(f"order {order} has no price")
    with (HERE / "charged").open("a") as charged:
        charged.write(f"{order}\n")
