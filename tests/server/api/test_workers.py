"""Workers over HTTP."""

from deadletter.core.access import Role
from deadletter.core.presence import WorkedMailbox, WorkerSign
from deadletter.ports import Presence
from deadletter.server.context import ServerContext
from server.api.conftest import Api, Caller

SIGN = WorkerSign(
    id="w-1",
    name="shop-1:17",
    host="shop-1",
    version="1.8.1",
    mailboxes=(
        WorkedMailbox(mailbox="orders", slots=200, in_flight=12),
        WorkedMailbox(mailbox="mails", brake="everything fails"),
    ),
)


async def note(context: ServerContext, *signs: WorkerSign) -> None:
    assert isinstance(context.store, Presence)
    await context.store.note_workers(signs)


async def test_workers_are_listed_with_what_they_work(api: Api, context: ServerContext) -> None:
    assert (await api.get("/api/v1/workers")).json() == []
    await note(context, SIGN)

    (line,) = (await api.get("/api/v1/workers")).json()

    assert (line["name"], line["version"], line["is_silent"]) == ("shop-1:17", "1.8.1", False)
    assert [box["mailbox"] for box in line["mailboxes"]] == ["orders", "mails"]
    assert line["mailboxes"][1]["brake"] == "everything fails"


async def test_limited_callers_see_their_mailboxes_only(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    await note(guarded, SIGN)

    mails = await guarded_api.get("/api/v1/workers", headers=await caller(Role.READER, "mails"))
    other = await guarded_api.get("/api/v1/workers", headers=await caller(Role.READER, "other"))

    (line,) = mails.json()
    assert [box["mailbox"] for box in line["mailboxes"]] == ["mails"]
    assert other.json() == []
