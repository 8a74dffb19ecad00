"""
The way of a message through an office and out of it again.

Sent, buried, listed, searched for, exported, imported elsewhere and replayed there:
whatever can be sent comes out byte for byte.
"""

import io
import json
from itertools import count
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from deadletter.app import App
from deadletter.cli.letters import head_fields
from deadletter.core.burial import burial
from deadletter.core.campaign import Care
from deadletter.core.failure import Bury, Failure, Reason, Trouble
from deadletter.core.letter import DeadLetter
from deadletter.core.message import LONGEST_TEXT, RESERVED, Message
from deadletter.core.query import parse, show
from deadletter.core.query.ast import Op, Term
from deadletter.core.query.fields import literal
from deadletter.core.text import encode_document, spelled
from deadletter.office.archive import ArchiveHead, write_archive
from deadletter.office.archive_import import TakenIn, take_in_archive
from deadletter.office.letters import Letters
from deadletter.office.replay import Replay
from deadletter.ports import Acked, Engine, LetterStore
from deadletter.system import SystemClock, SystemDice
from office.making import BY, NOW

_numbers = count(1)
_odd = st.sampled_from(
    [
        *("x" * LONGEST_TEXT, "é" * (LONGEST_TEXT // 2), "\0" * 500, "y" * 2_705),
        *("\0", "a\0b", "\ufdd0", "\ufdd0dc80", r"\udc80", "\\", '"', "*", "a*b", " "),
        *("\x1b[2J", "\n", "\r\n", "\u2028", "\x7f", "\ufeff", "\U0010ffff", "%_[^"),
        *("$where", "a.b", "=1+1", "x-dlq-escaped", "null", "{}", "' OR 1=1 --"),
    ]
)
texts = _odd | st.text(max_size=30)
messages = st.fixed_dictionaries(
    {"body": st.binary(max_size=200)},
    optional={
        "key": texts,
        "idempotency_key": texts,
        "content_type": texts.filter(bool),
        "reply_to": texts,
        "tracestate": texts,
        "headers": st.dictionaries(
            texts.filter(lambda name: not name.lower().startswith(RESERVED)),
            st.binary(max_size=60),
            max_size=4,
        ),
    },
)
batches = st.dictionaries(texts.filter(bool), messages, min_size=1, max_size=3)
"""Messages by their ids, of every shape that can be sent."""


async def travel(app: App, elsewhere: App, batch: dict[str, dict[str, Any]]) -> None:
    """Send messages on their way, and look at them at every step of it."""
    mailbox = f"orders-{next(_numbers)}"
    for id_, message in batch.items():
        await app.send(mailbox, id=id_, **message)
    letters = await follow(app, elsewhere, mailbox)
    assert [letter.message.id for letter in letters] == list(batch)


async def follow(app: App, elsewhere: App, mailbox: str) -> list[DeadLetter]:
    """Bury what is in a mailbox, and look at it at every step from there."""
    letters = await _buried(app, mailbox)
    await _listed(_store(await app.engine()), mailbox, letters)
    archive = await _exported(_store(await app.engine()), letters)
    there = await elsewhere.engine()
    taken = await take_in_archive(_store(there), archive, BY, archive="a.jsonl")
    assert taken == TakenIn(added=len(letters))
    await _listed(_store(there), mailbox, letters)
    copies = await _replayed(there, mailbox)
    assert copies == {letter.id: letter.message for letter in letters}
    return letters


async def _buried(app: App, mailbox: str) -> list[DeadLetter]:
    engine = await app.engine()
    source = engine.broker.source(mailbox)
    deliveries = await source.receive(limit=100, wait=15, lease=60)
    assert deliveries
    failure = Failure(trouble=Trouble.PERMANENT, code="NO", error_type="ValueError", text="no")
    letters = [
        burial(
            delivery,
            failure,
            Bury(Reason.REJECTED, "no"),
            history="",
            now=NOW,
            consumer="test",
            version="1",
        )
        for delivery in deliveries
    ]
    await _store(engine).keep(letters)
    assert all(await source.settle([Acked(one) for one in deliveries]))
    return letters


async def _listed(store: LetterStore, mailbox: str, letters: list[DeadLetter]) -> None:
    office = Letters(store, SystemClock())
    page = await office.search(f"source:{mailbox}", limit=100)
    told = [json.loads(encode_document(head_fields(head))) for head in page.heads]
    assert {one["id"]: (one["message_id"], one["key"]) for one in told} == {
        one.id: (one.message.id, one.message.key and spelled(one.message.key)) for one in letters
    }
    for letter in letters:
        term = show(Term("message", Op.IS, (literal(letter.message.id),)))
        assert parse(term)
        found = await office.search(f"source:{mailbox} {term}")
        assert [head.id for head in found.heads] == [letter.id]
        assert (await office.get(letter.id)).message == letter.message
        assert (await office.get(letter.id[:12])).message == letter.message


async def _exported(store: LetterStore, letters: list[DeadLetter]) -> io.BytesIO:
    file = io.BytesIO()
    head = ArchiveHead(exported_at=NOW)
    await write_archive(store, [letter.id for letter in letters], file, head)
    file.seek(0)
    return file


async def _replayed(engine: Engine, mailbox: str) -> dict[str, Message]:
    replay = Replay(
        _store(engine),
        engine.broker,
        SystemClock(),
        SystemDice(),
        engine.ledger,
        atomic_replay=engine.atomic_replay,
    )
    await replay.plan(f"source:{mailbox}")
    # Nobody confirms anything here, which the next letter of a key would wait for.
    campaign = await replay.start(f"source:{mailbox}", BY, care=Care(key_order=False))
    await replay.run(campaign.id)
    source = engine.broker.source(mailbox)
    deliveries = await source.receive(limit=100, wait=15, lease=60)
    assert all(await source.settle([Acked(one) for one in deliveries]))
    copies = {}
    for message in (delivery.message for delivery in deliveries):
        assert message.lineage is not None
        copies[message.lineage.letter_id] = replace(message, lineage=None)
    return copies


def _store(engine: Engine) -> LetterStore:
    assert engine.letters is not None
    return engine.letters
