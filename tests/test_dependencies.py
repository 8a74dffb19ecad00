"""What is imported is installed: by the package itself, or by a folder's own extra."""

import re
import sys
import tomllib
from functools import cache
from typing import Any

import pytest

from test_architecture import ROOT, TREES, imports

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]

# Modules that are called otherwise than what brings them.
BROUGHT_BY = {
    "botocore": "aiobotocore",
    "bson": "pymongo",
    "google": "protobuf",
    "hiredis": "redis",
    "nats": "nats-py",
    "opentelemetry": "opentelemetry-api",
}

# The extras that a folder or module stands for; the first that fits.
STANDS_FOR = {
    "brokers/amqp": {"rabbitmq"},
    "brokers/redis_common": {"redis"},
    **{f"{ring}/{extra}": {extra} for ring in ("stores", "brokers") for extra in EXTRAS},
    "server/auth/oidc": {"web", "oidc"},
    "server": {"web"},
    "queue_server/client": {"client"},
    "queue_server": {"web"},
    "client": {"client"},
    "observe/cloudwatch": {"sqs"},
    "observe": {"logs", "metrics", "otel"},
    "cli/reload": {"reload"},
}
# Whoever installs us into the workers of a task queue has that task queue.
TASK_QUEUES = {
    "integrations/celery": {"celery", "kombu", "amqp"},
    "integrations/dramatiq": {"dramatiq"},
    "integrations/rq": {"rq"},
}
# Whoever writes tests with our contracts has these: docs/testing.md says so.
FOR_TESTS = {"pytest", "hypothesis"}


@cache
def brings(extra: str) -> frozenset[str]:
    """What comes with an extra, and with those it names."""
    found: set[str] = set()
    for requirement in EXTRAS[extra]:
        match = re.match(r"([A-Za-z0-9_.-]+)(?:\[([^\]]*)\])?", requirement)
        assert match is not None, requirement
        if match[1] == PROJECT["name"]:
            found.update(*(brings(other) for other in match[2].split(",")))
        else:
            found.add(match[1])
    return frozenset(found)


BASE = {re.split(r"[^A-Za-z0-9_.-]", one)[0] for one in PROJECT["dependencies"]}


def allowed(module: str) -> set[str]:
    """What a module may import of others."""
    if module.startswith("testing/") or module == "pytest_plugin.py":
        return BASE | FOR_TESTS
    for place, theirs in TASK_QUEUES.items():
        if module.startswith(place):
            return BASE | theirs
    for place, extras in STANDS_FOR.items():
        if module == f"{place}.py" or module.startswith((f"{place}/", f"{place}.")):
            return BASE.union(*map(brings, extras))
    return BASE


def strangers(module: str, names: set[str]) -> set[str]:
    """What of these nobody promised to install."""
    ours = {"deadletter", *sys.stdlib_module_names}
    found = {BROUGHT_BY.get(one, one.replace("_", "-")) for one in names - ours}
    return found - allowed(module)


@pytest.mark.parametrize(("short", "long"), [("postgres", "postgresql"), ("mongo", "mongodb")])
def test_an_extra_may_be_called_by_its_short_name(short: str, long: str) -> None:
    assert brings(short) == brings(long)


def test_every_import_belongs_to_the_package_or_to_its_folders_extra() -> None:
    found = {
        module: wrong
        for module, tree in TREES.items()
        if (wrong := strangers(module, {name.partition(".")[0] for name, _ in imports(tree)}))
    }

    assert found == {}


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("brokers/rabbitmq/drain.py", "aiormq"),
        ("brokers/kafka/mailbox.py", "redis"),
        ("brokers/redis_common/script_runner.py", "asyncpg"),
        ("core/message.py", "pydantic"),
        ("runtime/worker.py", "prometheus_client"),
    ],
)
def test_the_rule_has_teeth(module: str, imported: str) -> None:
    assert strangers(module, {imported})


def test_the_extra_called_all_brings_everything() -> None:
    everything = frozenset().union(*map(brings, EXTRAS))

    assert brings("all") == everything
