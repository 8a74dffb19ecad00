"""What letters of a group have in common: first what sets them apart from others."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from deadletter.core.letter import DeadLetter
from deadletter.core.redact import MASK
from deadletter.office import variants as office
from deadletter.office.variants import Trait, Variants, group_variants
from deadletter.ports import Engine, LetterStore
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.wiring.engines import open_engine
from engines import mongodb_rig as mongodb
from engines import postgresql_time as postgresql
from office.making import make_letter
from servers.fixtures import needing_mongodb, needing_postgresql

GROUP = "1-yen"


@pytest.fixture(params=["memory", "sqlite", needing_postgresql(), needing_mongodb()])
async def engine(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock, dice: SeededDice
) -> AsyncIterator[Engine]:
    async with AsyncExitStack() as stack:
        match request.param:
            case "postgresql":
                server = request.getfixturevalue("postgresql_server")
                url = await stack.enter_async_context(postgresql.a_database(server.url))
            case "mongodb":
                server = request.getfixturevalue("mongodb_server")
                url = await stack.enter_async_context(mongodb.a_database(server.url))
            case "sqlite":
                url = f"sqlite:///{tmp_path}/office.db"
            case _:
                url = "memory://"
        engine = await open_engine(url, clock=clock, dice=dice)
        stack.push_async_callback(engine.close)
        yield engine


def failed(number: int, currency: str, group: str, **more: Any) -> DeadLetter:
    document = {
        "order": {"id": number, "shop": "eu"},
        "currency": currency,
        "password": f"hunter{number}",
        "items": [1, 2],
    }
    given: dict[str, Any] = {
        "body": json.dumps(document).encode(),
        "headers": {"tenant": "eu", "authorization": f"Bearer abc{number}"},
        "fingerprint": group,
        "error_text": f"no rate for order {number}",
    }
    return make_letter(number, **given | more)


def trait(found: Variants, field: str) -> Trait:
    (one,) = [one for one in found.traits if one.field == field]
    return one


async def test_distinguishing_values_are_listed_first(store: LetterStore) -> None:
    await store.keep(
        [failed(n, "JPY", GROUP, version=f"1.{n % 2}") for n in range(40)]
        + [failed(n, "EUR", "1-other", version="1.1") for n in range(40, 60)]
    )

    found = await group_variants(store, GROUP)

    assert (found.looked_at, found.letters, found.opened) == (40, 40, 40)
    assert found.compared == 20
    first = found.traits[0]
    assert first.field == "body.currency"
    assert [(v.value, v.count, v.elsewhere) for v in first.values] == [("JPY", 40, 0)]
    versions = trait(found, "version").values
    assert {(v.value, v.count, v.elsewhere) for v in versions} == {("1.0", 20, 0), ("1.1", 20, 20)}
    assert trait(found, "worker").values[0].value == "w-1"
    assert trait(found, "consumer").values[0].value == "charge"
    assert trait(found, "header.tenant").values[0].count == 40
    assert trait(found, "body.order.shop").values[0].value == "eu"
    assert trait(found, "body.order.id").distinct == 40


async def test_fields_with_another_value_in_each_letter_come_last(store: LetterStore) -> None:
    await store.keep(
        [failed(n, "JPY", GROUP, version="1.1") for n in range(12)]
        + [failed(n, "EUR", "1-other", version="1.1") for n in range(40, 60)]
    )

    found = await group_variants(store, GROUP)

    fields = [one.field for one in found.traits]
    assert fields[0] == "body.currency"
    assert [one.field for one in found.traits if one.is_individual] == ["body.order.id"]
    assert [one.field for one in found.traits if not one.tells] == fields[-3:]
    assert set(fields[-3:]) == {"body.order.id", "body.password", "header.authorization"}


async def test_texts_are_told_apart_without_what_varies(store: LetterStore) -> None:
    await store.keep(
        [failed(n, "JPY", GROUP) for n in range(5)]
        + [failed(9, "JPY", GROUP, error_text="the bank is closed")]
    )

    found = await group_variants(store, GROUP)

    assert found.distinct_texts == 2
    assert [text.count for text in found.texts] == [5, 1]
    assert "0" not in found.texts[0].value


async def test_secrets_are_masked(store: LetterStore) -> None:
    await store.keep([failed(n, "JPY", GROUP) for n in range(5)])

    found = await group_variants(store, GROUP)

    assert trait(found, "body.password").values[0].value == MASK
    assert trait(found, "header.authorization").values[0].value == MASK
    assert "hunter" not in str(found)


async def test_a_large_group_is_sampled_and_says_so(
    store: LetterStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(office, "SAMPLE", 10)
    monkeypatch.setattr(office, "_EXTENT", structs.replace(office._EXTENT, largest=500))
    large = json.dumps({"currency": "JPY", "note": "x" * 1_000}).encode()
    await store.keep(
        [failed(n, "JPY", GROUP) for n in range(30)] + [failed(99, "JPY", GROUP, body=large)]
    )

    found = await group_variants(store, GROUP)

    assert (found.looked_at, found.letters) == (10, 31)
    assert found.opened in {9, 10}
    assert sum(text.count for text in found.texts) == 10


async def test_odd_bodies_are_no_reason_to_fail(store: LetterStore) -> None:
    bodies = [b"", b"\xff\x00", b"[" * 5_000, b'{"a": 1e999}', b'{"": null}', b"7"]
    await store.keep([failed(n, "JPY", GROUP, body=body) for n, body in enumerate(bodies)])

    assert (await group_variants(store, GROUP)).looked_at == len(bodies)
