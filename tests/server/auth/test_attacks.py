"""Attacks: forgery, session fixation, smuggling, oversized input, timing."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from deadletter.core.access import Role, Token
from deadletter.core.letter import By
from deadletter.ports import AccessStore
from deadletter.server.app import build
from deadletter.server.auth import keys as minting
from deadletter.server.auth.keys import mint
from deadletter.server.context import ServerContext
from deadletter.testing.fakes import FakeClock, SeededDice, eventually
from deadletter.wiring.engines import open_engine
from office.making import make_letter
from server.auth.asking import answer_of
from server.auth.conftest import SESSION, TOKENS, Client, bearer, sign_in, visiting
from server.conftest import context_of, token

UNKNOWN = "dlq_0123456789_" + "0" * 64


class TestForgedRequests:
    """Cross-site requests with the cookie of a browser."""

    async def test_a_change_without_the_proof_is_refused(
        self, visitor: Client, admin: str, access: AccessStore
    ) -> None:
        await sign_in(visitor, admin)

        for proof in (None, "", "0" * 64, "ü", "x" * 100_000):
            shown = {} if proof is None else {"X-CSRF-Token": proof.encode()}
            made = await visitor.post(TOKENS, json={"name": "x"}, headers=shown)
            out = await visitor.delete(SESSION, headers=shown)

            assert (made.status_code, out.status_code) == (403, 403), proof
        assert len(await access.tokens()) == 1
        assert (await visitor.get(SESSION)).status_code == 200

    async def test_the_proof_of_another_session_is_none(
        self, visitor: Client, admin: str, guarded: ServerContext
    ) -> None:
        await sign_in(visitor, admin)
        async with visiting(guarded) as other:
            theirs = await sign_in(other, admin)

        made = await visitor.post(TOKENS, json={"name": "x"}, headers=theirs)

        assert made.status_code == 403

    async def test_the_proof_is_no_session(self, visitor: Client, admin: str) -> None:
        proof = await sign_in(visitor, admin)
        visitor.cookies.clear()

        assert (await visitor.get(SESSION, headers=proof)).status_code == 401
        visitor.cookies.set("dlq", proof["X-CSRF-Token"])
        assert (await visitor.get(SESSION)).status_code == 401

    async def test_a_form_signs_nobody_in(self, visitor: Client, admin: str) -> None:
        for form in ("text/plain", "application/x-www-form-urlencoded", ""):
            answer = await visitor.post(
                SESSION, content=f'{{"token": "{admin}"}}', headers={"Content-Type": form}
            )

            assert answer.status_code == 415, form
            assert "set-cookie" not in answer.headers


class TestFixedSessions:
    """Session fixation."""

    async def test_signing_in_never_takes_up_a_session(
        self, visitor: Client, guarded: ServerContext, admin: str
    ) -> None:
        async with visiting(guarded) as attacker:
            await sign_in(attacker, await token(guarded, Role.READER))
            planted = attacker.cookies["dlq"]
            visitor.cookies.set("dlq", planted, domain="dlq.example")

            await sign_in(visitor, admin)

            assert visitor.cookies["dlq"] != planted
            # It ends there and then: nobody waits in it for what comes.
            assert (await attacker.get(SESSION)).status_code == 401

    async def test_a_session_nobody_opened_is_none(self, visitor: Client, admin: str) -> None:
        visitor.cookies.set("dlq", "f" * 64, domain="dlq.example")
        assert (await visitor.get(SESSION)).status_code == 401

        await sign_in(visitor, admin)

        assert visitor.cookies["dlq"] != "f" * 64

    async def test_each_signing_in_is_another_session(self, visitor: Client, admin: str) -> None:
        seen = set()
        for _ in range(3):
            visitor.cookies.clear()
            await sign_in(visitor, admin)
            seen.add(visitor.cookies["dlq"])

        assert len(seen) == 3


class TestSmuggledTokens:
    """Tokens in wrong places of a request."""

    async def test_a_token_in_the_url_is_refused(self, visitor: Client, admin: str) -> None:
        escaped = admin.replace("_", "%5F").replace("d", "%64")
        for where in (
            *("?access_token={}", "?token={}", "?x=Bearer%20{}", "?a=1&b=x{}x"),
            *("?{}", "/{}"),
        ):
            path, method = (TOKENS, "DELETE") if "/" in where else (SESSION, "GET")
            url = path + where.format(admin)
            answers = [
                await visitor.request(method, url),
                await visitor.request(method, url, headers=bearer(admin)),
                await visitor.request(method, path + where.format(escaped)),
            ]

            assert [one.status_code for one in answers] == [400] * 3, where
            assert admin not in answers[0].text
            assert "revoke the token" in answers[0].json()["detail"]

    async def test_of_two_tokens_none_counts(self, visitor: Client, admin: str) -> None:
        twice = [("Authorization", f"Bearer {admin}"), ("Authorization", f"Bearer {UNKNOWN}")]

        for headers in (twice, twice[::-1]):
            assert (await visitor.get(SESSION, headers=headers)).status_code == 401

    async def test_a_wrong_token_does_not_fall_back_on_a_session(
        self, visitor: Client, admin: str
    ) -> None:
        await sign_in(visitor, admin)

        assert (await visitor.get(SESSION, headers=bearer(UNKNOWN))).status_code == 401

    async def test_only_one_form_is_understood(self, visitor: Client, admin: str) -> None:
        for form in (
            *("{}", "Basic {}", "Bearer{}", "Bearer {},Bearer x", "Bearer {} x"),
            *("Bearer x {}", "Token {}"),
        ):
            shown = {"Authorization": form.format(admin)}

            assert (await visitor.get(SESSION, headers=shown)).status_code == 401, form

    async def test_other_headers_are_not_looked_at(self, visitor: Client, admin: str) -> None:
        for header in ("X-Api-Key", "X-Authorization", "Cookie"):
            shown = {header: f"dlq={admin}" if header == "Cookie" else admin}

            assert (await visitor.get(SESSION, headers=shown)).status_code == 401


class TestRevokedElsewhere:
    """A revocation on one server applies to another server of the office."""

    @pytest.fixture
    async def other(self, url: str, clock: FakeClock) -> AsyncIterator[Client]:
        engine = await open_engine(url, clock=clock, dice=SeededDice())
        context = replace(context_of(engine, guarded=True), clock=clock)
        async with visiting(context) as client:
            yield client
        await engine.close()

    async def test_in_the_same_instant(
        self, visitor: Client, other: Client, guarded: ServerContext, admin: str
    ) -> None:
        shown = await token(guarded, Role.ADMIN)
        id_ = shown.split("_")[1]
        async with visiting(guarded) as browser:
            await sign_in(other, shown)  # a session at the other server
            await sign_in(browser, shown)  # and one here
            before = [
                await other.get(TOKENS, headers=bearer(shown)),
                await other.get(SESSION),
                await browser.get(SESSION),
            ]

            await visitor.delete(f"{TOKENS}/{id_}", headers=bearer(admin))

            after = [
                await other.get(TOKENS, headers=bearer(shown)),
                await other.get(SESSION),
                await browser.get(SESSION),
                await other.post(SESSION, json={"token": shown}),
            ]
        assert {answer.status_code for answer in before} == {200}
        assert {answer.status_code for answer in after} == {401}


class TestLongAnswers:
    """A caller loses access during an endless answer."""

    async def test_a_stream_ends_with_the_token_it_was_asked_with(
        self, guarded: ServerContext, access: AccessStore
    ) -> None:
        revoked, good = [await token(guarded, Role.READER) for _ in range(2)]
        app = build(guarded)
        events = "/api/v1/events"
        async with (
            app.lifespan(),
            answer_of(app, "GET", events, revoked) as theirs,
            answer_of(app, "GET", events, good) as others,
        ):
            await eventually(lambda: theirs.body and others.body)
            await access.revoke(revoked.split("_")[1])
            await guarded.store.record("act", "something", By("anna"))

            await eventually(lambda: theirs.is_over and b"something" in others.body)

            assert b"something" not in theirs.body
            assert not others.is_over


class TestSameForAll:
    """Errors do not reveal why a token is invalid, or which objects exist."""

    @pytest.fixture
    async def bad(
        self, guarded: ServerContext, access: AccessStore, clock: FakeClock
    ) -> dict[str, str]:
        good = await token(guarded, Role.ADMIN)
        revoked = await token(guarded, Role.ADMIN)
        await access.revoke(revoked.split("_")[1])
        kept, expired = mint(
            (await access.tokens())[0].to, at=clock.now(), by="x", expires_at=clock.now()
        )
        await access.add_token(kept)
        return {
            "unknown": UNKNOWN,
            "wrong secret": good[:-64] + "0" * 64,
            "revoked": revoked,
            "expired": expired,
            "malformed": "hello",
            "empty": "",
            "cut": good[:-1],
            "long": good + "0" * 10_000,
            "very long": "dlq_" + "a" * 60_000,
            "upper case": good.upper(),
            "odd": good[:-2] + "é",
        }

    async def test_one_answer_for_every_bad_token(
        self, visitor: Client, bad: dict[str, str], clock: FakeClock
    ) -> None:
        seen = {}
        for what, shown in bad.items():
            clock.advance(30)  # not to be held up
            header = f"Bearer {shown}".encode()
            used = await visitor.get(TOKENS, headers={"Authorization": header})
            signed = await visitor.post(SESSION, json={"token": shown})
            seen[what] = (
                *(used.status_code, used.content, used.headers),
                *(signed.status_code, signed.content, signed.headers),
            )

        first = seen["unknown"]
        assert (first[0], first[3]) == (401, 401)
        assert first[2]["www-authenticate"] == 'Bearer realm="deadletter"'
        assert {what for what, one in seen.items() if one != first} == set()

    async def test_every_token_costs_one_hash_and_one_look(
        self,
        visitor: Client,
        admin: str,
        bad: dict[str, str],
        access: AccessStore,
        counted: dict[str, int],
    ) -> None:
        costs = {}
        for what, shown in {"good": admin, **bad}.items():
            counted.update(hash=0, look=0, bytes=0)
            header = f"Bearer {shown}".encode()
            await visitor.get(SESSION, headers={"Authorization": header})
            costs[what] = (counted["hash"], counted["look"])
            assert counted["bytes"] < 100

        assert set(costs.values()) == {(1, 1)}

    @pytest.fixture
    def counted(self, access: AccessStore, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
        counts: dict[str, int] = {}
        hashes: Callable[..., Any] = minting.blake2b
        look = access.token

        def hashed(data: bytes, **how: Any) -> Any:
            counts["hash"] += 1
            counts["bytes"] += len(data)
            return hashes(data, **how)

        async def looked(hash: str) -> Token | None:
            counts["look"] += 1
            return await look(hash)

        monkeypatch.setattr(minting, "blake2b", hashed)
        monkeypatch.setattr(access, "token", looked)
        return counts

    async def test_a_letter_of_others_is_as_one_that_is_not_there(
        self, visitor: Client, guarded: ServerContext
    ) -> None:
        letter = make_letter()
        await guarded.store.keep([letter])
        limited = await token(guarded, Role.READER, "elsewhere")
        nobodys = "b" * len(letter.id)

        theirs = await visitor.get(f"/api/v1/letters/{letter.id}", headers=bearer(limited))
        missing = await visitor.get(f"/api/v1/letters/{nobodys}", headers=bearer(limited))

        assert theirs.status_code == missing.status_code == 404
        assert theirs.text.replace(letter.id, nobodys) == missing.text
