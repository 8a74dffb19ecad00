"""Dead letters on the wire: everything there and back, and never too much of it."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from contracts.generate import letters
from deadletter.core.attempts import Attempt, append
from deadletter.core.burial import BUDGET, NAMES, from_message, sign_copy, to_message
from deadletter.core.failure import Reason, Trouble
from deadletter.core.ids import body_digest, letter_id
from deadletter.core.letter import DeadLetter, LetterHead
from deadletter.core.message import Message
from deadletter.core.signing import Keys

AT = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
LATER = AT + timedelta(minutes=5)
NOW = AT + timedelta(hours=1)
KEYS = Keys(b"the key of this office")
DEAD = "orders-dlq"

FIELDS = (
    *("source", "message_id", "partition", "reason", "trouble", "code", "error_type"),
    *("error_text", "fingerprint", "attempts", "first_failed_at", "dead_at"),
    *("consumer", "version"),
)

headers = st.lists(
    st.tuples(st.sampled_from([*sorted(NAMES), "tenant", "x-y"]), st.binary(max_size=20))
).map(tuple)


def a_letter(message: Message | None = None, *, stack: str = "", **head: object) -> DeadLetter:
    message = message or Message(id="m-1", body=b"\x00\xff", sent_at=AT)
    attempt = Attempt(number=3, at=LATER, text="no", stack=stack)
    given = {
        "id": letter_id("orders", "7", message.id),
        "source": "orders",
        "message_id": message.id,
        "partition": "7",
        "reason": Reason.FATAL_ERROR,
        "trouble": Trouble.PERMANENT,
        "code": "NO_FUNDS",
        "error_type": "shop.errors.NoFunds",
        "error_text": "no funds on account",
        "fingerprint": "abc",
        "attempts": 3,
        "first_failed_at": AT,
        "dead_at": LATER,
        "consumer": "charge",
        "version": "1.8",
        **head,
    }
    return DeadLetter(
        head=LetterHead(**given),  # type: ignore[arg-type]
        message=message,
        history=append("", attempt),
        position="7/42",
    )


def sent(letter: DeadLetter) -> Message:
    return sign_copy(to_message(letter), letter, DEAD, KEYS)


def back(message: Message, mailbox: str = DEAD, keys: Keys = KEYS) -> DeadLetter:
    return from_message(message, mailbox, keys, NOW)


def our_size(message: Message, original: Message) -> int:
    ours = message.headers[len(original.headers) :]
    return sum(len(name) + len(value) for name, value in ours)


def test_the_main_facts_of_a_letter_survive_mailing() -> None:
    letter = a_letter(stack='  File "shop.py", line 3, in charge')

    there = back(sent(letter))

    assert there.id == letter.id
    assert there.position == "7/42"
    for field in FIELDS:
        assert getattr(there.head, field) == getattr(letter.head, field), field
    [attempt] = there.story()
    assert attempt.number == 3
    assert attempt.stack == '  File "shop.py", line 3, in charge'


@given(headers=headers, body=st.binary(max_size=200))
def test_body_and_user_headers_come_back_as_they_were(
    headers: tuple[tuple[str, bytes], ...], body: bytes
) -> None:
    expires = AT + timedelta(hours=1)
    message = Message(id="m", body=body, sent_at=AT, headers=headers, key="k", expires_at=expires)

    copy = sent(a_letter(message))
    there = back(copy)

    assert there.message == message
    assert copy.body == body
    assert copy.headers[: len(headers)] == headers


@given(headers=headers, order=st.randoms(use_true_random=False))
def test_a_broker_that_shuffles_headers_of_different_names_loses_nothing(
    headers: tuple[tuple[str, bytes], ...], order: st.DrawFn
) -> None:
    headers = tuple((name, value) for name, value in headers if name not in NAMES)
    letter = a_letter(Message(id="m", body=b"", sent_at=AT, headers=headers))
    copy = sent(letter)
    shuffled = list(copy.headers)
    order.shuffle(shuffled)  # type: ignore[attr-defined]

    there = back(structs.replace(copy, headers=tuple(shuffled)))

    assert there.head.reason == letter.head.reason
    assert sorted(there.message.headers) == sorted(headers)


@given(
    letter=letters(),
    words=st.text(max_size=40).map(lambda word: word * 300),
    stack=st.text(max_size=40).map(lambda word: word * 600),
)
def test_our_headers_stay_within_their_budget(letter: DeadLetter, words: str, stack: str) -> None:
    head = structs.replace(
        letter.head,
        source=words,
        partition=words,
        code=words,
        error_type=words,
        error_text=words,
        fingerprint=words,
        consumer=words,
        version=words,
    )
    attempt = Attempt(number=1, at=AT, stack=stack.encode("utf-8", "replace").decode())
    large = structs.replace(letter, head=head, history=append("", attempt), position=words)

    copy = sent(large)

    assert our_size(copy, large.message) <= BUDGET
    back(copy)


def test_the_stack_gives_way_first_and_keeps_its_end() -> None:
    stack = "".join(f"  File {n}\n" for n in range(2000)) + "the end"
    text = "x" * 900

    there = back(sent(a_letter(stack=stack, error_text=text)))

    [attempt] = there.story()
    assert attempt.stack.endswith("the end")
    assert len(attempt.stack) > 1500
    assert attempt.text == text


def test_headers_do_not_grow_from_cycle_to_cycle() -> None:
    letter = a_letter(stack="s" * 9000)
    sizes = []

    for _ in range(30):
        copy = sent(letter)
        sizes.append(sum(len(n) + len(v) for n, v in copy.headers))
        letter = back(copy)

    assert len(set(sizes[1:])) == 1


def test_a_letter_does_not_expire_in_its_dead_letter_mailbox() -> None:
    message = Message(id="m", body=b"", sent_at=AT, expires_at=AT)

    copy = sent(a_letter(message, reason=Reason.EXPIRED))

    assert copy.expires_at is None
    assert back(copy).message.expires_at == AT


@given(headers=headers, body=st.binary(max_size=50))
def test_a_foreign_message_is_a_letter_too(
    headers: tuple[tuple[str, bytes], ...], body: bytes
) -> None:
    headers = tuple((name, value) for name, value in headers if name != "dlq-id")
    message = Message(id="m", body=body, sent_at=AT, headers=headers)

    letter = back(message)

    assert letter.message == message
    assert letter.head.source == "orders-dlq"
    assert letter.head.reason is Reason.OPERATOR
    assert letter.head.trouble is Trouble.UNKNOWN
    assert letter.head.dead_at == AT


@given(
    values=st.dictionaries(
        st.sampled_from(sorted(NAMES)),
        st.binary(max_size=60)
        | st.sampled_from(
            [
                b"9" * 5000,
                "²".encode(),
                b"0001-01-01T00:00:00+23:59",
                b"9999-12-31T23:59:59-23:59",
                b"2026-01-01",
                b"worker-lost",
            ]
        ),
    )
)
def test_forged_headers_never_make_an_error(values: dict[str, bytes]) -> None:
    message = Message(id="m", body=b"", sent_at=AT, headers=tuple(values.items()))

    letter = back(message)

    assert letter.head.dead_at.tzinfo is UTC
    assert letter.head.attempts >= 0
    assert len(letter.id) == 24


def forged(letter: DeadLetter) -> Message:
    """A copy as anybody can write it: every header of ours but a good signature."""
    copy = to_message(letter)
    signature = Keys(b"the key of somebody else").sign("letter", "anything")
    headers = (*copy.headers, ("dlq-signature", signature.encode()))
    return structs.replace(copy, headers=headers)


@pytest.mark.parametrize("copy", [to_message(a_letter()), forged(a_letter())])
def test_without_a_signature_of_ours_nothing_is_believed(copy: Message) -> None:
    letter = back(copy)

    assert letter.head.source == DEAD
    assert letter.id == letter_id(DEAD, "", "m-1")
    assert letter.head.fingerprint == ""
    assert letter.head.reason is Reason.OPERATOR
    assert letter.message == copy  # and nothing of it is lost


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_changed_header_makes_the_signature_worthless(name: str) -> None:
    copy = sent(a_letter(stack="x"))
    headers = tuple((n, b"payments" if n == name else v) for n, v in copy.headers)

    assert back(structs.replace(copy, headers=headers)).head.source == DEAD


@pytest.mark.parametrize("changed", [{"body": b"other"}, {"id": "m-2"}])
def test_a_signature_is_for_one_message(changed: dict[str, object]) -> None:
    copy = structs.replace(sent(a_letter()), **changed)  # type: ignore[arg-type]

    assert back(copy).head.source == DEAD


def test_a_signature_is_for_one_mailbox() -> None:
    assert back(sent(a_letter()), mailbox="payments-dlq").head.source == "payments-dlq"


def test_an_older_key_still_verifies() -> None:
    old, new = b"the key of this office", b"the key of tomorrow"

    assert back(sent(a_letter()), keys=Keys(new, old)).head.source == "orders"
    assert back(sent(a_letter()), keys=Keys(new)).head.source == DEAD


def test_only_a_copy_that_names_its_letter_is_signed() -> None:
    """A policy that sends on what it got must not sign what a producer wrote."""
    lie = to_message(a_letter(source="payments"))

    assert sign_copy(lie, a_letter(), DEAD, KEYS) == lie


def test_a_time_to_come_is_not_believed() -> None:
    message = Message(id="m", body=b"", sent_at=NOW + timedelta(days=9))

    assert back(message).head.dead_at == NOW


def test_a_reused_message_id_stays_told_apart() -> None:
    twisted = letter_id("orders", "7", "m-1", body_digest(b"\x00\xff"))

    there = back(sent(a_letter(id=twisted)))

    assert there.id == twisted
    assert there.head.conflict
    assert not back(sent(a_letter())).head.conflict


def test_the_producers_wish_is_read_again() -> None:
    message = Message(id="m", body=b"", sent_at=AT, headers=(("retry-on-failure", b"true"),))

    assert back(sent(a_letter(message))).retry_wish is True
    assert back(message).retry_wish is True


def test_the_first_receipt_travels_along() -> None:
    letter = structs.replace(a_letter(), first_received_at=AT)

    assert back(sent(letter)).first_received_at == AT
    assert back(sent(a_letter())).first_received_at is None
