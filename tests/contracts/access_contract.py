"""What a store of tokens, sessions and answers promises, whoever keeps it."""

import asyncio
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from deadletter.core.access import Answer, Identity, Role, Session, Token
from deadletter.core.errors import Conflict, NotFound
from deadletter.ports import AccessStore, Engine, Guards
from deadletter.testing.fakes import START, FakeClock

ANNA = Identity(name="anna", role=Role.OPERATOR, sources=("orders", "mails"))
HOUR = timedelta(hours=1)


def a_token(id: str = "t1", *, to: Identity = ANNA, expires_at: datetime | None = None) -> Token:
    """A token whose hash follows from its id."""
    return Token(
        id=id,
        hash=f"hash of {id}",
        to=to,
        created_at=START,
        created_by="boss",
        expires_at=expires_at,
    )


def a_session(hash: str = "s1", *, of: str = "t1") -> Session:
    """A session that lasts an hour."""
    return Session(
        hash=hash, to=ANNA, token_id=of, csrf="proof", created_at=START, expires_at=START + HOUR
    )


def an_answer(key: str = "k1", *, request: str = "r1") -> Answer:
    """An answer that is being worked on, for an hour."""
    return Answer(key=key, request=request, expires_at=START + HOUR)


DONE = replace(an_answer(), status=201, body=b"\x00{}\xff", content_type="text/x")


class AccessContract:
    """
    What is revoked is gone for everybody, and a key is answered once.

    A backend's test class gives a fixture `engine` opened on the `clock` it is
    handed, empty, a fixture `neighbour` that sees the same as another process
    would, and names its engine class as `driver`.
    """

    driver: type[Engine]

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def access(self, engine: Engine) -> AccessStore:
        assert isinstance(engine, Guards)
        return engine.access

    @pytest.fixture
    def elsewhere(self, neighbour: Engine) -> AccessStore:
        assert isinstance(neighbour, Guards)
        return neighbour.access

    async def test_a_token_is_found_by_its_hash_only(self, access: AccessStore) -> None:
        whole = replace(a_token(expires_at=START + HOUR), last_used_at=START - 24 * HOUR)
        await access.add_token(whole)

        assert await access.token(whole.hash) == whole
        assert await access.token(whole.id) is None
        assert await access.token("") is None

    async def test_an_unlimited_token_is_kept_as_such(self, access: AccessStore) -> None:
        token = a_token(to=Identity(name="root", role=Role.ADMIN))
        await access.add_token(token)

        assert await access.token(token.hash) == token

    async def test_odd_names_are_kept_as_they_are(self, access: AccessStore) -> None:
        odd = "a\x00b ü \U0001f4ee 'x' \"y\""
        token = a_token(to=Identity(name=odd, role=Role.READER, sources=(odd, "b")))
        await access.add_token(replace(token, created_by=odd))

        assert await access.tokens() == [replace(token, created_by=odd)]

    @pytest.mark.parametrize(
        "twin",
        [replace(a_token(), hash="another hash"), replace(a_token("t2"), hash=a_token().hash)],
        ids=["same id", "same hash"],
    )
    async def test_no_two_tokens_share_an_id_or_a_hash(
        self, access: AccessStore, twin: Token
    ) -> None:
        await access.add_token(a_token())

        with pytest.raises(Conflict):
            await access.add_token(twin)

        assert await access.tokens() == [a_token()]

    async def test_tokens_are_listed_by_name(self, access: AccessStore) -> None:
        names = ["bo", "anna", "Zoe", "anna"]
        for number, name in enumerate(names):
            await access.add_token(a_token(f"t{number}", to=Identity(name=name, role=Role.READER)))

        found = [(token.to.name, token.id) for token in await access.tokens()]

        assert found == [("Zoe", "t2"), ("anna", "t1"), ("anna", "t3"), ("bo", "t0")]

    async def test_use_is_remembered_to_the_hour(
        self, access: AccessStore, clock: FakeClock
    ) -> None:
        await access.add_token(a_token())
        clock.advance(2 * 3600 + 1234.5)

        await access.used("t1")
        await access.used("nobody")

        (token,) = await access.tokens()
        assert token.last_used_at == START + 2 * HOUR

    async def test_a_revoked_token_is_gone_everywhere_at_once(
        self, access: AccessStore, elsewhere: AccessStore
    ) -> None:
        await access.add_token(a_token())
        await access.add_token(a_token("t2"))
        assert await elsewhere.token(a_token().hash) == a_token()

        assert await access.revoke("t1")

        assert await elsewhere.token(a_token().hash) is None
        assert await elsewhere.tokens() == [a_token("t2")]
        assert not await elsewhere.revoke("t1")

    async def test_its_sessions_go_with_it(
        self, access: AccessStore, elsewhere: AccessStore
    ) -> None:
        await access.add_token(a_token())
        await access.add_token(a_token("t2"))
        await access.open_session(a_session("s1"))
        await access.open_session(a_session("s2", of="t2"))

        await elsewhere.revoke("t1")

        assert await access.session("s1") is None
        assert await access.session("s2") == a_session("s2", of="t2")

    async def test_a_token_that_is_gone_opens_no_session(self, access: AccessStore) -> None:
        await access.add_token(a_token())
        await access.revoke("t1")

        with pytest.raises(NotFound):
            await access.open_session(a_session())

        assert await access.session("s1") is None

    async def test_no_session_outlives_a_revocation_beside_it(
        self, access: AccessStore, elsewhere: AccessStore
    ) -> None:
        for n in range(10):
            await access.add_token(a_token(f"t{n}"))
            await asyncio.gather(
                access.open_session(a_session(f"s{n}", of=f"t{n}")),
                elsewhere.revoke(f"t{n}"),
                return_exceptions=True,
            )

            assert await access.session(f"s{n}") is None

    async def test_a_session_lasts_until_its_end(
        self, access: AccessStore, clock: FakeClock
    ) -> None:
        await access.add_token(a_token())
        await access.open_session(a_session())

        clock.advance(3599)
        still = await access.session("s1")
        clock.advance(1)

        assert still == a_session()
        assert await access.session("s1") is None

    async def test_who_signs_out_is_out_everywhere(
        self, access: AccessStore, elsewhere: AccessStore
    ) -> None:
        await access.add_token(a_token())
        await access.open_session(a_session("s1"))
        await access.open_session(a_session("s2"))

        await access.close_session("s1")
        await access.close_session("s1")

        assert await elsewhere.session("s1") is None
        assert await elsewhere.session("s2") is not None

    async def test_open_sessions_are_listed_latest_first(
        self, access: AccessStore, elsewhere: AccessStore, clock: FakeClock
    ) -> None:
        await access.add_token(a_token())
        later = replace(a_session("s2"), created_at=START + HOUR / 2, expires_at=START + 2 * HOUR)
        await access.open_session(a_session("s1"))
        await access.open_session(later)

        assert await elsewhere.sessions() == [later, a_session("s1")]
        clock.advance(3600)
        assert await elsewhere.sessions() == [later]
        await access.close_session("s2")
        assert await elsewhere.sessions() == []

    async def test_a_token_is_stored_anew_and_its_sessions_stay(self, access: AccessStore) -> None:
        await access.put_token(a_token())
        await access.open_session(a_session())
        renewed = replace(a_token(), hash="another", expires_at=START + HOUR)

        await access.put_token(renewed)

        assert await access.tokens() == [renewed]
        assert await access.session("s1") == a_session()

    async def test_sessions_end_when_a_token_gets_other_rights(self, access: AccessStore) -> None:
        await access.put_token(a_token())
        await access.put_token(a_token("t2"))
        await access.open_session(a_session())
        await access.open_session(a_session("s2", of="t2"))

        await access.put_token(a_token(to=replace(ANNA, role=Role.READER)))

        assert await access.sessions() == [a_session("s2", of="t2")]

    async def test_no_token_takes_the_hash_of_another(self, access: AccessStore) -> None:
        await access.put_token(a_token())

        with pytest.raises(Conflict):
            await access.put_token(replace(a_token("t2"), hash=a_token().hash))

        assert await access.tokens() == [a_token()]

    async def test_a_key_is_claimed_once(self, access: AccessStore, elsewhere: AccessStore) -> None:
        first = await access.begin_answer(an_answer())
        second = await elsewhere.begin_answer(an_answer(request="r2"))

        assert first is None
        assert second == an_answer()

    async def test_of_many_at_once_one_has_the_key(
        self, access: AccessStore, elsewhere: AccessStore
    ) -> None:
        found = await asyncio.gather(
            *(
                store.begin_answer(an_answer(request=f"r{n}"))
                for n, store in enumerate([access, elsewhere] * 5)
            )
        )

        assert found.count(None) == 1
        assert len(set(found)) == 2

    async def test_what_was_answered_is_told_again(
        self, access: AccessStore, elsewhere: AccessStore
    ) -> None:
        await access.begin_answer(an_answer())
        await access.finish_answer(DONE)

        assert await elsewhere.begin_answer(an_answer()) == DONE

    async def test_the_first_answer_stays(self, access: AccessStore) -> None:
        await access.begin_answer(an_answer())
        await access.finish_answer(DONE)
        await access.finish_answer(replace(DONE, status=500))

        assert await access.begin_answer(an_answer()) == DONE

    async def test_a_key_that_was_dropped_is_free(self, access: AccessStore) -> None:
        await access.begin_answer(an_answer())
        await access.drop_answer("k1")

        assert await access.begin_answer(an_answer(request="r2")) is None

    async def test_a_key_whose_time_is_over_is_free(
        self, access: AccessStore, clock: FakeClock
    ) -> None:
        await access.begin_answer(an_answer())
        await access.finish_answer(DONE)
        clock.advance(3600)
        later = replace(an_answer(request="r2"), expires_at=START + 2 * HOUR)

        assert await access.begin_answer(later) is None
        assert await access.begin_answer(an_answer()) == later

    async def test_an_answer_that_comes_too_late_replaces_nobodys(
        self, access: AccessStore, clock: FakeClock
    ) -> None:
        await access.begin_answer(an_answer())
        clock.advance(3600)
        later = replace(an_answer(request="r2"), expires_at=START + 2 * HOUR)
        await access.begin_answer(later)

        await access.finish_answer(DONE)

        assert await access.begin_answer(an_answer()) == later

    async def test_tidying_forgets_what_is_over_and_nothing_else(
        self, access: AccessStore, clock: FakeClock
    ) -> None:
        await access.add_token(a_token(expires_at=START))
        for n in range(3):
            await access.open_session(a_session(f"s{n}"))
            await access.begin_answer(an_answer(f"k{n}"))
        lasting = replace(a_session("s9"), expires_at=START + 2 * HOUR)
        await access.open_session(lasting)
        clock.advance(3600)

        gone = [await access.tidy(limit=4) for _ in range(3)]

        assert gone == [4, 2, 0]
        assert await access.session("s9") == lasting
        assert len(await access.tokens()) == 1  # until somebody revokes it
