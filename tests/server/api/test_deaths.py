"""Deaths over time over HTTP."""

from datetime import timedelta

from deadletter.core.access import Role
from deadletter.server.context import ServerContext
from deadletter.testing.letters_bench import a_letter
from server.api.conftest import Api, Caller


async def filed(context: ServerContext) -> None:
    now = context.clock.now()
    await context.store.keep(
        [
            a_letter(at=now, fingerprint="f-1", version="1.8"),
            a_letter(at=now, fingerprint="f-2"),
            a_letter(at=now - timedelta(hours=3), source="mails", fingerprint="f-3", version="2.0"),
            a_letter(at=now - timedelta(days=3), source="mails", fingerprint="f-3"),
        ]
    )


async def test_deaths_are_charted(api: Api, context: ServerContext) -> None:
    await filed(context)

    day = (await api.get("/api/v1/deaths", params={"by": "group"})).json()
    week = (await api.get("/api/v1/deaths", params={"since": "7d", "by": "source"})).json()
    group = (await api.get("/api/v1/deaths", params={"group": "f-3", "since": "7d"})).json()

    assert (day["step"], day["total"]) == (300.0, 3)
    assert {one["name"]: one["n"] for one in day["counts"]} == {"f-1": 1, "f-2": 1, "f-3": 1}
    assert (week["step"], week["total"], group["total"]) == (3600.0, 4, 2)
    stats = (await api.get("/api/v1/stats")).json()
    assert [one["count"] for one in stats["arrivals"]] == [2, 3]
    assert (sum(stats["deaths_by_hour"]), stats["deaths_by_hour"][-1]) == (3, 2)


async def test_spans_that_cannot_be_charted_are_rejected(api: Api) -> None:
    for params, advice in (
        ({"step": "7m"}, "5m, 1h or 1d"),
        ({"step": "soon"}, "5m, 1h or 1d"),
        ({"since": "yesterday"}, "is not a time"),
        ({"since": "5d", "step": "5m"}, "use a step of 1h or 1d"),
        ({"since": "2026-01-01", "until": "2025-01-01"}, "must be after"),
        ({"most": "101"}, "most"),
        ({"from": "1d"}, "there is no parameter"),
    ):
        answer = await api.get("/api/v1/deaths", params=params)

        assert answer.status_code == 400, answer.text
        assert advice in answer.text


async def test_limited_tokens_see_only_their_mailboxes(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    await filed(guarded)
    anna = await caller(Role.READER, "orders")

    async def asked(path: str, **params: str) -> tuple[int, object]:
        answer = await guarded_api.get(f"/api/v1/{path}", params=params, headers=anna)
        return answer.status_code, answer.json()

    _, everything = await asked("deaths", since="7d", by="source")
    _, of_a_group = await asked("deaths", since="7d", group="f-3")
    status, _ = await asked("deaths", source="mails")
    _, marks = await asked("marks", since="7d")

    assert {one["name"] for one in everything["counts"]} == {"orders"}  # type: ignore[index]
    assert of_a_group["total"] == 0  # type: ignore[index]
    assert status == 404
    assert {one["mailbox"] for one in marks} == {"orders"}  # type: ignore[index]
