"""
The whole API under fire: whatever is asked, nothing breaks and all is as described.

Requests are made up from the description, by callers of every role, against a real
server on an office with letters in it.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from deadletter.core.access import Role
from deadletter.server.app import build
from deadletter.wiring.engines import open_engine
from office.making import BY, make_letters
from queue_server.wire.wire_rig import running
from server.conftest import context_of, token

pytestmark = pytest.mark.slow

CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]
EXAMPLES = 8  # of each operation, role and way of asking
ENDLESS = "/api/v1/events"  # tested by itself: it does not end


@schemathesis.serializer("application/x-ndjson")
def as_lines(_: object, value: object) -> bytes:
    """Encode a generated body unchanged."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


class Ground:
    """A server in a separate thread, with a token for each role."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self.url = ""
        self.tokens: dict[Role, str] = {}
        self.there: dict[str, list[str]] = {}  # what there is, by the path it is at

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(60)

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        engine = await open_engine(f"sqlite:///{self._file}")
        try:
            context = context_of(engine, guarded=True)
            now = context.clock.now()
            letters = make_letters(20, now=now)
            await context.store.keep(letters)
            replay = await context.office.replays.sender.start(f"id:{letters[-1].id}", BY, rate=0.1)
            self.there = {
                "/api/v1/letters/{": [letter.id for letter in letters[:2]],
                "/api/v1/groups/{": [letters[0].head.fingerprint],
                "/api/v1/replays/{": [replay.id],
                "/admin/dlq/{": ["charge"],
                "/api/v1/queues/{": ["orders"],
            }
            for role in Role:
                self.tokens[role] = await token(context, role)
            async with running(build(context)) as self.url:
                self._ready.set()
                await self._over.wait()
        finally:
            await engine.close()


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with Ground(tmp_path_factory.mktemp("office") / "office.db") as ground:
        yield ground


@pytest.fixture(scope="module")
def description(ground: Ground) -> Any:
    loaded = schemathesis.openapi.from_url(f"{ground.url}/api/openapi.json")
    return loaded.exclude(path=ENDLESS)


@pytest.mark.parametrize("role", list(Role))
def test_responses_match_the_openapi_document(ground: Ground, description: Any, role: Role) -> None:
    headers = {"authorization": f"Bearer {ground.tokens[role]}"}
    statuses: Counter[int] = Counter()
    operations = [found.ok() for found in description.get_all_operations()]
    for operation in operations:
        for strategy in _strategies(operation, ground):
            statuses += _fire(strategy, headers)

    assert len(operations) > 45
    # It is no use if everything is refused.
    assert statuses[200] + statuses[201] > len(operations)
    assert (statuses[403] > 0) == (role is not Role.ADMIN)


def _strategies(operation: Any, ground: Ground) -> Iterator[Any]:
    """Valid requests, invalid requests, and requests about existing objects."""
    yield operation.as_strategy(GenerationMode.POSITIVE)
    if operation.path_parameters or operation.query or operation.body:
        yield operation.as_strategy(GenerationMode.NEGATIVE)
    for part, names in ground.there.items():
        if operation.path.startswith(part):
            for name in names:
                known = dict.fromkeys(("id", "name", "node_id"), name)
                asked = {one.name: known[one.name] for one in operation.path_parameters}
                yield operation.as_strategy(path_parameters=asked)


def _fire(strategy: Any, headers: dict[str, str]) -> Counter[int]:
    statuses: Counter[int] = Counter()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def ask(case: Any) -> None:
        answer = case.call_and_validate(headers=headers, checks=CHECKS)
        statuses[answer.status_code] += 1

    ask()
    return statuses
