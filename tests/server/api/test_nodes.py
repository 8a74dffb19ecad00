"""Replays of the letters of a pipeline node."""

from typing import Any

from deadletter.core.failure import Trouble
from deadletter.core.letter import State
from deadletter.profiles.pipeline import DlqMessage, import_
from deadletter.server.context import ServerContext
from deadletter.testing.fakes import eventually
from office.making import NOW, make_letter
from server.api.conftest import Api

PATH = "/admin/dlq/node-7/replay"


async def in_pipeline(context: ServerContext, count: int, node: str = "node-7") -> None:
    await context.store.keep(
        [
            import_(
                DlqMessage(
                    stream=b"stream %d" % number,
                    error_type="TIMEOUT",
                    error_message="module did not answer",
                    failed_at=NOW,
                    retry_count=3,
                    failed_node_id=node,
                    original_topic=f"prod.{node}",
                    original_offset=number,
                ),
                trouble=Trouble.TRANSIENT,
            )
            for number in range(count)
        ]
    )


async def received(context: ServerContext, topic: str, count: int) -> set[bytes]:
    got: set[bytes] = set()

    async def all_there() -> bool:
        source = context.engine.broker.source(topic)
        some = await source.receive(limit=9, wait=0, lease=60)
        got.update(delivery.message.body for delivery in some)
        return len(got) == count

    await eventually(all_there)
    return got


async def test_letters_of_a_node_go_back_to_its_topic_unwrapped(
    api: Api, context: ServerContext
) -> None:
    await in_pipeline(context, 2)
    await in_pipeline(context, 2, node="node-8")

    answer = await api.post(PATH, json={"reason": "module is up again"})

    assert answer.status_code == 201
    assert answer.json()["plan"]["targets"] == {"prod.node-7": 2}
    assert await received(context, "prod.node-7", 2) == {b"stream 0", b"stream 1"}
    assert (await context.office.letters.counts())["prod.node-8"] == {State.PENDING: 2}


async def test_letters_of_the_nodes_own_topic_are_its_as_well(
    api: Api, context: ServerContext
) -> None:
    await context.store.keep([make_letter(1, source="prod.node-7"), make_letter(2)])

    answer = await api.post(PATH, json={"dry_run": True})

    assert answer.json()["plan"]["sources"] == {"prod.node-7": 1}


async def test_the_bounds_of_the_request_are_kept(api: Api, context: ServerContext) -> None:
    await in_pipeline(context, 3)

    async def planned(**wish: Any) -> Any:
        return (await api.post(PATH, json=wish | {"dry_run": True})).json()

    assert (await planned(limit=2))["sendable"] == 2
    assert (await planned(filter="message:prod.node-7@1"))["sendable"] == 1
    assert (await context.office.letters.counts())["prod.node-7"] == {State.PENDING: 3}


async def test_a_dry_run_leaves_nothing_behind(api: Api, context: ServerContext) -> None:
    await in_pipeline(context, 2)
    before = await context.store.audit(limit=100)

    answer = await api.post(PATH, json={"dry_run": True, "reason": "what if"})

    assert answer.status_code == 200
    assert answer.json()["replay"] is None
    assert answer.json()["plan"]["targets"] == {"prod.node-7": 2}
    assert (await api.get("/api/v1/replays")).json()["replays"] == []
    assert await context.store.campaigns() == []
    assert await context.store.audit(limit=100) == before


async def test_a_dry_run_shows_the_search_that_is_replayed(
    api: Api, context: ServerContext
) -> None:
    await in_pipeline(context, 1)
    own = "(consumer:node-7 OR source:[node-7,*.node-7]) is:[pending,reviewed]"

    async def shown(filter_: str) -> Any:
        wish = {"dry_run": True, "filter": filter_}
        return (await api.post(PATH, json=wish)).json()["plan"]["query"]

    assert await shown("") == own
    assert await shown(" * ") == own
    assert await shown("since:2d") == f"{own} since:2d"
    sent = await api.post(PATH, json={})
    assert sent.json()["replay"]["query"] == own


async def test_a_node_where_nothing_died(api: Api, context: ServerContext) -> None:
    await in_pipeline(context, 1)

    for node in ["node-9", "node*", "*"]:
        answer = await api.post(f"/admin/dlq/{node}/replay", json={})

        assert answer.status_code == 404


async def test_a_number_that_was_not_expected_sends_nothing(
    api: Api, context: ServerContext
) -> None:
    await in_pipeline(context, 2)

    answer = await api.post(PATH, json={"expect": 1})

    assert answer.status_code == 409
    assert (await context.office.letters.counts())["prod.node-7"] == {State.PENDING: 2}
