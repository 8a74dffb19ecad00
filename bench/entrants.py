"""Who takes part on which engine, and how many messages each workload has for him."""

import shutil
import subprocess
import sys

from contest import BENCH, Contestant

PEERS = BENCH / "peers"
WORKLOADS = ("happy", "poison", "replay")


class Entrant(Contestant, frozen=True, kw_only=True):
    """A contestant on one engine."""

    engine: str
    forgets: bool = False  # a message when it takes it: lost when its worker dies

    @property
    def is_here(self) -> bool:
        if self.runs_on_node:
            return has_bullmq()
        return super().is_here

    @property
    def runs_on_node(self) -> bool:
        """Whether it is a script for Node rather than a module."""
        return self.module.endswith(".js")

    @property
    def program(self) -> list[str]:
        """What to start it with."""
        if self.runs_on_node:
            return ["node", str(PEERS / self.module)]
        return [sys.executable, "-m", f"peers.{self.module}"]


def has_bullmq() -> bool:
    """Whether there is Node, with BullMQ."""
    if shutil.which("node") is None:
        return False
    asking = ["node", "-e", "require.resolve('bullmq')"]
    done = subprocess.run(asking, cwd=PEERS, capture_output=True, check=False)
    return done.returncode == 0


def _ours(engine: str, **sizes: int) -> tuple[Entrant, Entrant]:
    return (
        Entrant(
            engine=engine, name="raw", module=f"raw_{engine}", is_peer=False,
            sizes=sizes,
        ),
        Entrant(
            engine=engine, name="deadletter", module="ours_on_server", is_peer=False,
            sizes=sizes,
        ),
    )  # fmt: skip


def _peer(
    engine: str, name: str, module: str, package: str, /, *,
    setting: str = "-", forgets: bool = False, **sizes: int,
) -> Entrant:  # fmt: skip
    return Entrant(
        engine=engine, name=name, module=module, package=package, setting=setting,
        forgets=forgets, sizes=sizes,
    )  # fmt: skip


# Enough to run for about a second each.
ENTRANTS = (
    *_ours("postgresql", happy=20_000, poison=3_000, replay=10_000),
    _peer("postgresql", "pgqueuer", "pgqueuer_worker", "pgqueuer",
          happy=10_000, poison=600, replay=3_000),
    _peer("postgresql", "chancy", "chancy_worker", "chancy",
          happy=6_000, poison=600, replay=3_000),
    _peer("postgresql", "procrastinate", "procrastinate_worker", "procrastinate",
          happy=400, poison=200, replay=300),
    *_ours("redis", happy=20_000, poison=3_000, replay=10_000),
    _peer("redis", "bullmq", "bullmq.js", "bullmq for Node",
          happy=10_000, poison=1_000, replay=5_000),
    _peer("redis", "dramatiq", "dramatiq_worker", "dramatiq",
          happy=6_000, poison=500),
    _peer("redis", "huey", "huey_redis", "huey", forgets=True,
          happy=5_000, poison=500),
    _peer("redis", "taskiq", "taskiq_worker", "taskiq-redis",
          happy=3_000, poison=500),
    *_ours("sqs", happy=3_000, poison=500, replay=1_000),
    *_ours("kafka", happy=20_000, poison=2_000, replay=5_000),
    _peer("kafka", "faststream", "faststream_kafka", "faststream", forgets=True,
          happy=10_000),
    _peer("kafka", "faststream-acked", "faststream_kafka", "faststream",
          setting="acked", happy=5_000),
    *_ours("rabbitmq", happy=10_000, poison=1_500, replay=3_000),
    Entrant(engine="rabbitmq", name="raw-aio-pika", module="raw_aio_pika",
            is_peer=False, sizes={"happy": 4_000, "poison": 500, "replay": 1_000}),
    _peer("rabbitmq", "dramatiq", "dramatiq_worker", "dramatiq",
          happy=6_000, poison=500),
    _peer("rabbitmq", "celery", "celery_worker", "celery", forgets=True,
          happy=3_000, poison=100),
    *_ours("nats", happy=10_000, poison=1_500, replay=3_000),
    _peer("nats", "faststream", "faststream_nats", "faststream", happy=4_000),
)  # fmt: skip
PACKAGES = (
    "deadletter", "asyncpg", "redis", "aiobotocore", "confluent-kafka", "pika",
    "aio-pika", "nats-py", "pgqueuer", "chancy", "procrastinate", "dramatiq", "huey",
    "taskiq", "taskiq-redis", "celery", "faststream", "uvloop",
)  # fmt: skip
