"""The recipes for SQS, NATS and Kafka, followed to the letter."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import nats
from confluent_kafka.admin import AdminClient, NewTopic

from docs.reading import ROOT, blocks, commands
from servers import Server
from servers.kafka import Kafka as Broker

RECIPES = ROOT / "docs" / "recipes"
PATIENCE = 90.0  # seconds for a command


def follow(page: str, title: str, folder: Path, here: dict[str, str], **environ: str) -> list[str]:
    """Write the files of a section, type its commands; what each of them said."""
    section = (RECIPES / page).read_text().split(f"\n## {title}\n")[1]
    environment = {
        **os.environ,
        "DLQ_URL": f"sqlite:///{folder / 'office.db'}",
        "PYTHONPATH": str(ROOT / "src"),
        **environ,
    }
    said: list[str] = []
    for block in blocks(section.split("\n## ")[0]):
        text = block.text
        for there, instead in here.items():
            text = text.replace(there, instead)
        if block.file is not None:
            (folder / block.file).write_text(text)
            continue
        for command in commands(text):
            words = shlex.split(command.text)
            start = ["-m", "deadletter.cli"] if words[0] == "dlq" else []
            sure = ["--yes"] if words[:2] == ["dlq", "replay"] else []
            done = subprocess.run(
                [sys.executable, *start, *words[1:], *sure],
                capture_output=True,
                check=False,
                cwd=folder,
                env=environment,
                text=True,
                timeout=PATIENCE,
            )
            assert done.returncode == 0, f"{command.text}: {done.stderr}"
            said.append(done.stdout)
    return said


def test_sqs(sqs_server: Server, tmp_path: Path) -> None:
    settings = {
        "AWS_ENDPOINT_URL_SQS": sqs_server.url,
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }

    said = follow("sqs.md", "A queue with a dead-letter queue", tmp_path, {}, **settings)

    assert said[-1] == "handled o-1 for eu\n"


async def test_nats(nats_server: Server, tmp_path: Path) -> None:
    client = await nats.connect(nats_server.url)
    js: Any = client.jetstream()
    for info in await js.streams_info():
        await js.delete_stream(info.config.name or "")
    await client.close()
    here = {"nats://localhost:4222": nats_server.url}

    said = follow("nats.md", "A consumer that gives up", tmp_path, here)

    assert said[-1] == "handled o-1 of orders.eu\n"


def test_kafka(kafka_server: Broker, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": kafka_server.bootstrap})
    names = ("orders", "orders.DLT", "payments", "dlq-payments")
    for future in admin.create_topics([NewTopic(name, 1) for name in names]).values():
        future.result(20)
    here = {"localhost:9092": kafka_server.bootstrap}

    spring = follow("kafka.md", "Spring Kafka", tmp_path, here)
    connect = follow("kafka.md", "Kafka Connect", tmp_path, here)

    assert spring[-1] == "handled o-1 of c-1\n"
    assert connect[-1] == "handled p-1\n"
