"""What is packed comes back, also when somebody else puts it together."""

from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.ids import letter_id
from deadletter.core.message import Lineage, Message
from deadletter.core.packing import lineage_around, pack_extra, pack_outgoing, unpack_extra
from deadletter.testing.fakes import START

texts = st.text(max_size=40)
maybe = st.none() | texts
messages = st.builds(
    Message,
    id=texts,
    body=st.just(b""),
    sent_at=st.just(START),
    headers=st.lists(st.tuples(texts, st.binary(max_size=9)), max_size=3).map(tuple),
    content_type=maybe,
    key=maybe,
    reply_to=maybe,
    idempotency_key=maybe,
    traceparent=maybe,
    tracestate=maybe,
)


@given(messages, texts, st.integers(0, 2**40))
def test_outgoing_with_a_lineage_behind_it_is_what_the_copy_would_be(
    message: Message, campaign: str, generation: int
) -> None:
    id_ = letter_id("orders", "", message.id)
    lineage = Lineage(letter_id=id_, generation=generation, campaign=campaign)
    before, after = lineage_around(campaign, generation)
    outgoing = pack_outgoing(message)
    if outgoing is None:  # only an id that no database can hold as it is
        assert any(odd in message.id for odd in "\0\ufdd0")
        return

    packed = outgoing + before + id_.encode() + after

    extra = unpack_extra(packed)
    assert extra.lineage == lineage
    assert (extra.headers, extra.key) == (message.headers, message.key)
    copy = Message(
        id=message.id,
        body=b"",
        sent_at=START,
        headers=message.headers,
        content_type=message.content_type,
        key=message.key,
        reply_to=message.reply_to,
        idempotency_key=message.idempotency_key,
        traceparent=message.traceparent,
        tracestate=message.tracestate,
        lineage=lineage,
    )
    assert packed == pack_extra(copy)


def test_messages_with_unstorable_text_are_not_packed() -> None:
    message = Message(id="m", body=b"", sent_at=START, key="\ud800")

    assert pack_outgoing(message) is None
