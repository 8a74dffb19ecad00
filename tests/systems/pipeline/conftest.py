"""One pipeline for all tests; each test sends streams of its own."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest

from servers import Server
from stage import Stage
from systems.pipeline.rig import Rig, served

NODES: dict[str, Any] = {
    "parse": {"nextNodeIds": ["chunk", "embed"]},
    "chunk": {},
    "embed": {},  # its topic has three partitions
    "loop": {"nextNodeIds": ["loop"]},
    "late": {"timeout": "0.3s", "dlqConfig": {"retryBackoff": "0.1s"}},
    "remote": {"moduleId": "remote", "dlqConfig": {"retryBackoff": "0.1s"}},
    "crowded": {"moduleId": "gone", "dlqConfig": {"retryBackoff": "0.1s"}},
    "alerting": {"moduleId": "gone", "dlqConfig": {"maxRetries": 1}},
    "outage": {"moduleId": "outage", "dlqConfig": {"brake": True, "retryBackoff": "0.3s"}},
    "four": {"dlqConfig": {"maxRetries": 4, "retryBackoff": "0.2s"}},
    "patient": {"dlqConfig": {"retryBackoff": "3600s"}},  # longer than any test
    "once": {"dlqConfig": {"maxRetries": 0}},
    "usual": {"dlqConfig": {}},
    "again": {"dlqConfig": {"maxRetries": 1, "retryBackoff": "3600s"}},
    "foreign": {"dlqConfig": {"maxRetries": 1}},  # its topic has records of other engines
    **{
        name: {"dlqConfig": {"maxRetries": 1}}
        for name in ("reread", "closed", "dry", "drained", "piped")
    },
    "named": {
        "kafkaInputTopic": "$cluster-intake",
        "dlqConfig": {"maxRetries": 1, "topic": "$cluster-graveyard"},
    },
    "silent": {"dlqConfig": {"enabled": False, "maxRetries": 1}},
}


@pytest.fixture(scope="session")
def rig(kafka_server: Server) -> Iterator[Rig]:
    with Stage() as stage:
        rig = Rig(stage, kafka_server.url, NODES)
        with served(rig), closing(rig):
            rig.engine()
            yield rig


@pytest.fixture(scope="session")
def dlq(rig: Rig) -> Iterator[httpx.Client]:
    """`dlq serve` over the same broker and office."""
    with closing(rig.dlq()) as client:
        yield client
