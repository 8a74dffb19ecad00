"""A shop on Celery that has no word about dead letters but one: install."""

import os
import time
from typing import Any

import dying
import till
from celery import Celery

from deadletter.integrations.celery import install

app = Celery("shop", broker=till.URL)
app.conf.update(
    task_default_queue="shop",
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
    # Tasks of a killed worker come back soon: kombu looks for them every 100 s otherwise.
    broker_transport_options={
        "visibility_timeout": 2,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    },
    worker_prefetch_multiplier=1,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
)
if till.URL.startswith("filesystem:"):
    for name in ("mail", "control"):
        (till.HERE / name).mkdir(exist_ok=True)
    folder = str(till.HERE / "mail")
    app.conf.broker_transport_options = {
        "data_folder_in": folder,
        "data_folder_out": folder,
        "control_folder": str(till.HERE / "control"),
    }
dying.arm()
hooks = install(app, os.environ["OFFICE"], timeout=float(os.environ.get("TIMEOUT", "10")))


@app.task(name="shop.charge")
def charge(order: str, token: str = "", note: str = "") -> None:
    till.charge(order)


@app.task(name="shop.deliver", autoretry_for=(ValueError,), default_retry_delay=0, max_retries=2)
def deliver(order: str) -> None:
    till.charge(order)


@app.task(name="shop.die", acks_late=False)
def die(order: str) -> None:
    with (till.HERE / "tried").open("a") as tried:
        tried.write(f"{order}\n")
    if (till.HERE / "broken").exists():
        os.kill(os.getpid(), 9)
    with (till.HERE / "charged").open("a") as charged:
        charged.write(f"{order}\n")


@app.task(name="shop.sleep", acks_late=False, time_limit=1)
def sleep(order: str) -> None:
    if (till.HERE / "broken").exists():
        time.sleep(60)
    with (till.HERE / "charged").open("a") as charged:
        charged.write(f"{order}\n")


def send(order: str, task: str = "shop.charge", **more: Any) -> None:
    app.send_task(task, (order,), task_id=f"task-{order}", **more)
