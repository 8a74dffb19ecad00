"""The same as commands: what a person at a terminal does with dead items."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from systems.leasequeue.rig import Queues, Server, client_of, imported

Ran = subprocess.CompletedProcess[str]


@pytest.fixture
def queues(server_on_memory: Server) -> Queues:
    return Queues(client_of(server_on_memory.address))


@pytest.fixture
def dlq(server_on_memory: Server) -> Callable[..., Ran]:
    def run(*words: str, code: int = 0, given: str = "") -> Ran:
        ran = subprocess.run(
            [sys.executable, "-m", "deadletter.cli", *words],
            env=os.environ | {"DLQ_SERVER": server_on_memory.address, "COLUMNS": "120"},
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode == code, ran.stdout + ran.stderr
        return ran

    return run


def documents(ran: Ran) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_a_queue_is_given_its_dead_queue_by_an_option(
    dlq: Callable[..., Ran], queues: Queues
) -> None:
    jobs, dead = queues.name("jobs"), queues.name("dead")
    refused = dlq("queues", "lent", "create", jobs, "--dead-queue", dead, code=2)
    assert "does not exist" in refused.stderr

    dlq("queues", "lent", "create", dead)
    dlq("queues", "lent", "create", jobs, "--dead-queue", dead)

    known = {one["name"]: one for one in documents(dlq("--json", "queues", "lent"))}
    assert known[jobs]["dead_queue"] == dead
    refused = dlq("queues", "lent", "update", dead, "--dead-queue", jobs, code=2)
    assert "dead" in refused.stderr


def test_dead_items_are_inspected_and_reprocessed_by_hand(
    dlq: Callable[..., Ran], queues: Queues
) -> None:
    jobs, dead = queues.name("jobs"), queues.name("dead")
    dlq("queues", "lent", "create", dead)
    dlq("queues", "lent", "create", jobs, "--dead-queue", dead, "--max-attempts", "1")
    dlq("produce", jobs, "amount: 1O", "--reference", "order-7")
    (lent,) = documents(dlq("--json", "lease", jobs))
    dlq("retry", jobs, lent["item"]["id"])

    seen = dlq("queues", "lent", "items", dead).stdout
    assert lent["item"]["id"] in seen  # where it came from
    assert "amount: 1O" in seen
    taken = dlq("lease", dead, "--raw")
    id_ = taken.stderr.split()[0]
    mended = taken.stdout.replace("O", "0")
    dlq("produce", jobs, "--file", "-", "--reference", "order-7", given=mended)
    dlq("complete", dead, id_)

    (again,) = documents(dlq("--json", "lease", jobs))
    assert again["item"]["attempts"] == 1
    assert "No items are in" in dlq("queues", "lent", "items", dead).stdout


async def test_looking_is_not_leasing(dlq: Callable[..., Ran], queues: Queues) -> None:
    async with queues.client:
        await queues.create("dead")
        name = queues.name("dead")
        await queues.client.import_items(name, [imported("abc")])

        (seen,) = documents(dlq("--json", "queues", "lent", "items", name))

        assert (seen["source_id"], seen["attempts"]) == ("abc", 0)
        assert (await queues.lease("dead")).attempts == 1
