"""Rate limits for failed authentication, which do not affect other callers."""

import asyncio

import pytest

from deadletter.core.errors import Unavailable
from deadletter.ports import AccessStore
from deadletter.server.auth.authenticator import Authenticator, Failures
from deadletter.server.context import ServerContext
from deadletter.testing.fakes import FakeClock
from server.auth.conftest import SESSION, Client, acts, bearer

UNKNOWN = "dlq_0123456789_" + "0" * 64


@pytest.fixture
def failures(clock: FakeClock) -> Failures:
    return Failures(clock)


class TestFailures:
    """The counter of failures."""

    def test_an_address_fails_ten_times_and_then_waits(
        self, failures: Failures, clock: FakeClock
    ) -> None:
        tries = [failures.spend("10.0.0.1") for _ in range(12)]

        assert tries[:10] == [0.0] * 10
        assert tries[10:] == [30.0, 30.0]  # trying on does not make it worse
        assert failures.spend("10.0.0.2") == 0.0

        clock.advance(29.5)
        assert failures.spend("10.0.0.1") == 0.5
        clock.advance(0.5)
        assert failures.spend("10.0.0.1") == 0.0
        assert failures.spend("10.0.0.1") == 30.0

    def test_all_is_forgiven_in_time(self, failures: Failures, clock: FakeClock) -> None:
        for _ in range(10):
            failures.spend("10.0.0.1")
        clock.advance(300)

        assert [failures.spend("10.0.0.1") for _ in range(10)] == [0.0] * 10

    def test_many_addresses_together_wait_as_well(
        self, failures: Failures, clock: FakeClock
    ) -> None:
        tries = [failures.spend(f"10.0.{n}.1") for n in range(101)]

        assert tries == [0.0] * 100 + [3.0]
        clock.advance(3)
        assert failures.spend("10.0.0.9") == 0.0

    def test_however_many_come_few_are_remembered(
        self, failures: Failures, clock: FakeClock
    ) -> None:
        most = 0
        for n in range(20_000):
            failures.spend(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}")
            clock.advance(0.1)
            most = max(most, len(failures))

        assert most < 300

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("2001:db8::1", "2001:db8::ffff:1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            (None, "not an address"),
        ],
    )
    def test_addresses_of_one_network_count_as_one(
        self, failures: Failures, one: str, other: str
    ) -> None:
        for _ in range(10):
            failures.spend(one)

        assert failures.spend(other) > 0
        assert failures.spend("2001:db8:0:1::1") == 0.0


class TestSigningIn:
    """Over HTTP."""

    async def test_after_ten_failures_the_wrong_wait_and_the_right_do_not(
        self, visitor: Client, admin: str, clock: FakeClock
    ) -> None:
        tried = [await visitor.post(SESSION, json={"token": UNKNOWN}) for _ in range(12)]
        right = await visitor.post(SESSION, json={"token": admin})
        wrong = await visitor.post(SESSION, json={"token": UNKNOWN})
        clock.advance(30)
        later = await visitor.post(SESSION, json={"token": UNKNOWN})

        assert [one.status_code for one in tried] == [401] * 10 + [429] * 2
        assert tried[-1].headers["retry-after"] == "31"
        assert tried[-1].headers["content-type"] == "application/problem+json"
        assert (right.status_code, wrong.status_code) == (201, 429)
        assert later.status_code == 401

    async def test_distributed_failures_lock_nobody_out(
        self, visitor: Client, guarded: ServerContext, admin: str
    ) -> None:
        failures = Failures(guarded.clock)
        authenticator = Authenticator(guarded.access, guarded.clock)
        authenticator._sign_ins = failures
        for number in range(200):
            failures.spend(f"10.0.{number}.1")
        visitor.app.state.authenticator = authenticator

        right = await visitor.post(SESSION, json={"token": admin})
        wrong = await visitor.post(SESSION, json={"token": UNKNOWN})

        assert (right.status_code, wrong.status_code) == (201, 429)

    async def test_concurrent_sign_ins_are_counted(self, visitor: Client) -> None:
        answers = await asyncio.gather(
            *(visitor.post(SESSION, json={"token": UNKNOWN}) for _ in range(30))
        )

        codes = [answer.status_code for answer in answers]
        assert (codes.count(401), codes.count(429)) == (10, 20)

    async def test_signing_in_often_is_fine(self, visitor: Client, admin: str) -> None:
        for _ in range(15):
            answer = await visitor.post(SESSION, json={"token": admin})
            assert answer.status_code == 201

    async def test_the_audit_tells_of_it_once(
        self, visitor: Client, guarded: ServerContext
    ) -> None:
        for _ in range(30):
            await visitor.post(SESSION, json={"token": UNKNOWN})

        told = [(e.actor, e.action, e.target) for e in await acts(guarded)]

        assert told == [("dlq serve", "block", "address:testclient")]

    async def test_a_store_out_of_reach_is_nobodys_failure(
        self, visitor: Client, admin: str, access: AccessStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def unreachable(hash: str) -> None:
            raise Unavailable("gone fishing")

        with monkeypatch.context() as patch:
            patch.setattr(access, "token", unreachable)
            codes = {
                (await visitor.post(SESSION, json={"token": admin})).status_code for _ in range(15)
            }

        assert codes == {503}
        assert (await visitor.post(SESSION, json={"token": admin})).status_code == 201


class TestTokens:
    """Only invalid tokens are limited."""

    async def test_a_stale_token_waits_and_its_neighbour_does_not(
        self, visitor: Client, admin: str
    ) -> None:
        stale = [await visitor.get(SESSION, headers=bearer(UNKNOWN)) for _ in range(11)]
        good = await visitor.get(SESSION, headers=bearer(admin))
        signed_in = await visitor.post(SESSION, json={"token": admin})

        assert [one.status_code for one in stale] == [401] * 10 + [429]
        assert stale[-1].headers["retry-after"] == "31"
        assert (good.status_code, signed_in.status_code) == (200, 201)

    async def test_unknown_sessions_are_not_rate_limited(self, visitor: Client) -> None:
        visitor.cookies.set("dlq", "0" * 64)

        codes = {(await visitor.get(SESSION)).status_code for _ in range(20)}

        assert codes == {401}
