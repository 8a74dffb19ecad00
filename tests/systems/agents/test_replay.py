"""Replay of dead letters: by handler, by predicate, once for each request."""

from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
import structlog

from agents import (
    Backend,
    BackendMailbox,
    CompositeResolver,
    DeadLetter,
    DLQConsumer,
    MainLoopRequest,
    MainLoopResult,
    ReceivedMessage,
    RegistryResolver,
)
from agents.dead_letter import to_dead_letter
from agents.errors import MailboxResolutionError
from agents.replay import (
    ReplayLog,
    ReplayOutcome,
    replay_handler,
    replay_with_dedup,
    selective_replay,
    send_back,
)
from deadletter import State
from deadletter.core.events import LetterHandled
from deadletter.core.letter import DeadLetter as Kept
from engines.redis_rig import fresh
from systems.agents.rig import Rig, failing, running, until, upper

NO, LATE = LookupError("no such thing"), TimeoutError("too slow")


def known(rig: Rig) -> RegistryResolver:
    return RegistryResolver({"answers": rig.answers})


def settled(rig: Rig, *states: State) -> list[Kept]:
    """Return all letters, once they are in these states."""

    def are_there() -> list[Kept]:
        kept = rig.kept()
        found = sorted(letter.head.state for letter in kept)
        return kept if found == sorted(states) else []

    return until(are_there)


def test_a_replayed_request_is_answered_in_its_reply_mailbox(rig: Rig) -> None:
    rig.bury(hello=LATE)
    handler = partial(replay_handler, source=rig.requests, reply_resolver=known(rig))
    with structlog.testing.capture_logs() as lines:
        DLQConsumer(mailbox=rig.dead, handler=handler).run(max_iterations=1, wait_time_seconds=5)
    with running(rig.loop(upper)):
        result = rig.answer()
        (letter,) = settled(rig, State.REPLAYED)

    assert result == MainLoopResult(result.request_id, "HELLO")
    assert str(result.request_id) == letter.head.business_key
    (line,) = [line for line in lines if line["event"] == "Replayed dead letter"]
    assert line["message_id"] == letter.head.message_id
    assert line["request_id"] == letter.head.business_key
    assert [event.action for event in rig.seen(LetterHandled)] == ["replayed"]
    assert rig.dead.approximate_count() == 0


def test_replayed_messages_are_byte_identical(rig: Rig) -> None:
    rig.bury(hello=LATE)
    before = rig.kept()[0].message

    assert (
        send_back(rig.letter(), source=rig.requests, reply_resolver=known(rig))
        is ReplayOutcome.SENT
    )

    async def received() -> Any:
        source = (await rig.backend.broker()).source("requests")
        (delivery,) = await source.receive(limit=1, wait=5, lease=30)
        return delivery.message

    after = rig.backend.call(received())
    assert (after.body, after.headers) == (before.body, before.headers)
    assert (after.id, after.reply_to) == (before.id, before.reply_to)


def test_letters_with_an_unknown_reply_mailbox_stay(rig: Rig) -> None:
    rig.bury(hello=LATE)
    handler = partial(replay_handler, source=rig.requests, reply_resolver=RegistryResolver({}))

    DLQConsumer(mailbox=rig.dead, handler=handler).run(max_iterations=1, wait_time_seconds=5)

    assert rig.requests.approximate_count() == 0
    assert rig.dead.approximate_count() == 1
    with pytest.raises(MailboxResolutionError):
        handler(to_dead_letter(rig.kept()[0], rig.dead.decode_dead))


def test_replays_can_redirect_the_reply(rig: Rig) -> None:
    rig.bury(hello=LATE)
    elsewhere: BackendMailbox[MainLoopResult[str], None] = rig.box("elsewhere", MainLoopResult[str])
    moved = RegistryResolver({"answers": elsewhere})

    letter = rig.letter()

    went = [send_back(letter, source=rig.requests, reply_resolver=moved) for _ in range(2)]

    assert went == [ReplayOutcome.SENT, ReplayOutcome.BEFORE]
    assert rig.kept()[0].head.state is State.CLOSED  # it goes on as another message
    with running(rig.loop(upper)):
        (message,) = elsewhere.receive(wait_time_seconds=15)
    assert message.body.output == "HELLO"
    assert rig.answers.approximate_count() == 0


class Noting(BackendMailbox[Any, None]):
    """Records its receive calls."""

    asked: list[tuple[int, float]]

    def receive(
        self, *, max_messages: int = 1, visibility_timeout: float = 30, wait_time_seconds: float = 0
    ) -> Sequence[ReceivedMessage[Any, None]]:
        self.asked.append((max_messages, visibility_timeout))
        return super().receive(
            max_messages=max_messages,
            visibility_timeout=visibility_timeout,
            wait_time_seconds=wait_time_seconds,
        )


def too_slow(letter: DeadLetter[Any]) -> bool:
    return "TimeoutError" in letter.last_error_type


def mixed(rig: Rig) -> Noting:
    """A mailbox with five letters, of which the second and the fourth are of a timeout."""
    rig.bury(no1=NO, late1=LATE, no2=NO, late2=LATE, no3=NO)
    dead = Noting(name="requests-dlq", client=rig.backend, body_type=DeadLetter[Any])
    dead.asked = []
    return dead


def test_selective_replay_returns_the_number_of_replayed_letters(rig: Rig) -> None:
    dead = mixed(rig)

    count = selective_replay(dead, rig.requests, predicate=too_slow, reply_resolver=known(rig))

    assert count == 2


def test_selective_replay_receives_up_to_ten_for_sixty_seconds(rig: Rig) -> None:
    dead = mixed(rig)
    rig.bury(**{f"more{number}": NO for number in range(7)})

    selective_replay(dead, rig.requests, predicate=too_slow, reply_resolver=known(rig))

    assert dead.asked == [(10, 60)]  # once, though there are twelve


def test_matching_letters_are_replayed_and_acknowledged(rig: Rig) -> None:
    selective_replay(mixed(rig), rig.requests, predicate=too_slow, reply_resolver=known(rig))

    again = [message.body.request for message in rig.requests.receive(max_messages=10)]
    assert sorted(again) == ["late1", "late2"]
    assert rig.dead.approximate_count() == 3
    assert [event.action for event in rig.seen(LetterHandled)] == ["replayed"] * 2


def test_other_letters_are_visible_again_at_once(rig: Rig) -> None:
    selective_replay(mixed(rig), rig.requests, predicate=too_slow, reply_resolver=known(rig))

    left = [message.body.body.request for message in rig.dead.receive(max_messages=10)]
    assert left == ["no1", "no2", "no3"]


def test_letters_can_be_selected_by_part_of_their_error_type(rig: Rig) -> None:
    rig.bury(late=LATE, late_too=TimeoutError("slow"), no=NO)

    count = selective_replay(
        rig.dead,
        rig.requests,
        predicate=lambda letter: "TimeoutError" in letter.last_error_type,
        reply_resolver=known(rig),
    )

    assert count == 2


def test_a_whole_mailbox_can_be_looked_through(rig: Rig) -> None:
    # The first dozen does not match: it must not hide what is behind it.
    rig.bury(**{f"no{number}": NO for number in range(12)})
    rig.bury(**{f"late{number}": LATE for number in range(3)})

    count = selective_replay(
        rig.dead, rig.requests, predicate=too_slow, reply_resolver=known(rig), whole_mailbox=True
    )

    assert count == 3
    left = [
        message.body.body.request
        for _ in range(2)
        for message in rig.dead.receive(max_messages=10)  # at once: they do not wait
    ]
    assert sorted(left) == sorted(f"no{number}" for number in range(12))


def test_a_letter_is_sent_once_also_after_a_crash(rig: Rig) -> None:
    rig.bury(hello=LATE)
    (message,) = rig.dead.receive(wait_time_seconds=5)
    replay = partial(send_back, source=rig.requests, reply_resolver=known(rig))

    assert replay(message.body) is ReplayOutcome.SENT
    assert replay(message.body) is ReplayOutcome.BEFORE
    message.nack()  # it was never acknowledged, as if its replayer had died
    count = selective_replay(
        rig.dead, rig.requests, predicate=lambda letter: True, reply_resolver=known(rig)
    )

    assert count == 0
    assert rig.requests.approximate_count() == 1
    assert rig.dead.approximate_count() == 0  # its letter is out: that is enough


def test_a_copy_that_fails_again_returns_to_its_letter(rig: Rig) -> None:
    rig.bury(hello=LATE)
    policy = rig.policy(max_delivery_count=1)
    selective_replay(
        rig.dead, rig.requests, predicate=lambda letter: True, reply_resolver=known(rig)
    )
    with running(rig.loop(failing(NO), dlq=policy)):
        rig.answer()
        (letter,) = until(lambda: [kept for kept in rig.kept() if kept.head.state is State.PENDING])

    assert (letter.head.replays, letter.head.error_type) == (1, "LookupError")
    assert [attempt.error_type for attempt in letter.story()] == ["TimeoutError", "LookupError"]
    assert rig.letter().last_error == "no such thing"  # and in the mailbox again


def test_letters_that_were_replayed_too_often_are_quarantined(rig: Rig) -> None:
    rig.bury(hello=LATE)
    policy = rig.policy(max_delivery_count=1)

    def replay() -> int:
        return selective_replay(
            rig.dead, rig.requests, predicate=lambda letter: True, reply_resolver=known(rig)
        )

    with running(rig.loop(failing(LATE), dlq=policy)):
        for _ in range(5):
            assert replay() == 1
            rig.answer()
            until(lambda: rig.dead.approximate_count() == 1)
            until(lambda: rig.requests.approximate_count() == 0)
        assert replay() == 0

    assert rig.dead.approximate_count() == 1
    assert rig.kept()[0].head.state is State.QUARANTINED


def test_a_letter_the_office_does_not_know_is_sent_as_a_new_message(rig: Rig) -> None:
    rig.bury(hello=LATE)
    letter = rig.letter()
    unknown = DeadLetter(
        message_id="of somebody else",
        body=letter.body,
        source_mailbox="requests",
        delivery_count=5,
        last_error="no",
        last_error_type="builtins.ValueError",
        dead_lettered_at=letter.dead_lettered_at,
        first_received_at=letter.first_received_at,
    )

    assert send_back(unknown, source=rig.requests, reply_resolver=known(rig)) is ReplayOutcome.SENT

    (message,) = rig.requests.receive(wait_time_seconds=5)
    assert message.body == letter.body


def test_a_replay_can_transform_the_body_and_keeps_the_original(rig: Rig) -> None:
    rig.bury(helo=NO)

    def corrected(request: MainLoopRequest[str]) -> MainLoopRequest[str]:
        return MainLoopRequest("hello", request.request_id)

    count = selective_replay(
        rig.dead,
        rig.requests,
        predicate=lambda letter: letter.body.request == "helo",
        reply_resolver=known(rig),
        transform=corrected,
    )
    with running(rig.loop(upper)):
        assert rig.answer().output == "HELLO"

    (letter,) = rig.kept()
    assert count == 1
    assert letter.original is not None
    assert b'"helo"' in letter.original.body
    assert b'"hello"' in letter.message.body


def test_a_letter_can_go_to_a_mailbox_of_another_engine(rig: Rig, tmp_path: Any) -> None:
    rig.bury(hello=LATE)
    with Backend(f"sqlite:///{tmp_path}/other.db") as other:
        source: BackendMailbox[MainLoopRequest[str], Any] = BackendMailbox(
            name="requests", client=other, body_type=MainLoopRequest[str]
        )
        makes = CompositeResolver({}, lambda name: BackendMailbox(name=name, client=other))

        count = selective_replay(
            rig.dead, source, predicate=lambda letter: True, reply_resolver=makes
        )

        (message,) = source.receive(wait_time_seconds=5)
        assert (count, message.body.request) == (1, "hello")
        assert message.reply_to is not None
    assert rig.requests.approximate_count() == 0
    assert rig.dead.approximate_count() == 0
    assert rig.kept()[0].head.state is State.CLOSED


def test_a_set_remembers_what_was_replayed(rig: Rig) -> None:
    rig.bury(hello=LATE)
    letter = rig.letter()
    seen: set[UUID] = set()
    with structlog.testing.capture_logs() as lines:
        answers = [replay_with_dedup(letter, rig.requests, seen) for _ in range(2)]

    assert answers == [True, False]
    assert seen == {letter.request_id}
    assert rig.requests.approximate_count() == 1
    (skipped,) = [line for line in lines if line["event"] == "Skipping duplicate replay"]
    assert skipped["request_id"] == str(letter.request_id)


class TestDedup:
    """Each request is replayed once, and a replay log remembers it."""

    def replayed(self, rig: Rig, letter: DeadLetter[Any], name: str = "fix") -> bool:
        seen = ReplayLog(rig.backend, name)  # another one each time: nothing is in memory
        return replay_with_dedup(letter, rig.requests, seen, reply_resolver=known(rig))

    def letter(self, rig: Rig, message_id: str, request_id: Any) -> DeadLetter[Any]:
        now = rig.backend.clock.now()
        return DeadLetter(
            message_id,
            MainLoopRequest("hello"),
            "requests",
            5,
            "no",
            "builtins.ValueError",
            now,
            now,
            request_id=request_id,
        )

    def test_a_request_in_two_messages_is_replayed_once(self, rig: Rig) -> None:
        request_id = uuid4()
        with structlog.testing.capture_logs() as lines:
            answers = [
                self.replayed(rig, self.letter(rig, name, request_id))
                for name in ("m-1", "m-2", "m-1")
            ]

        assert answers == [True, False, False]
        assert rig.requests.approximate_count() == 1
        skipped = [line for line in lines if "Skipping duplicate" in line["event"]]
        assert [line["request_id"] for line in skipped] == [str(request_id)] * 2

    def test_requests_without_an_id_are_told_apart(self, rig: Rig) -> None:
        answers = [
            self.replayed(rig, self.letter(rig, name, None)) for name in ("m-1", "m-2", "m-1")
        ]

        assert answers == [True, True, False]
        assert rig.requests.approximate_count() == 2

    def test_a_letter_is_replayed_once_per_name(self, rig: Rig) -> None:
        letter = self.letter(rig, "m-1", uuid4())

        assert self.replayed(rig, letter, "monday")
        assert not self.replayed(rig, letter, "monday")
        assert self.replayed(rig, letter, "tuesday")

    def test_a_replay_that_died_before_sending_can_be_repeated(self, rig: Rig) -> None:
        letter = self.letter(rig, "m-1", uuid4())
        assert ReplayLog(rig.backend, "fix").begin(letter).mine  # ...and then it died

        assert self.replayed(rig, letter)
        assert rig.requests.approximate_count() == 1

    @pytest.mark.xdist_group("redis_server")
    def test_the_replay_log_survives_the_process(self, redis_server: Any, tmp_path: Any) -> None:
        url, office = fresh(redis_server.url), f"sqlite:///{tmp_path}/office.db"
        one, two = Rig(url, office=office), Rig(url, office=office)
        try:
            letter = self.letter(one, "m-1", uuid4())
            assert self.replayed(one, letter)
            one.backend.close()

            assert not self.replayed(two, letter)
        finally:
            one.backend.close()
            two.backend.close()
