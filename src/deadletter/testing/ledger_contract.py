"""The contract of a ledger."""

import asyncio
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from deadletter.core.ids import body_digest
from deadletter.ports import Engine, Ledger, LedgerClaim, LedgerKey, LedgerState

from .fakes import FakeClock

TTL: Final = 1000.0
DONE, BUSY = LedgerState.PROCESSED, LedgerState.PROCESSING
FAILED, DEAD = LedgerState.FAILED, LedgerState.DEAD_LETTERED


class LedgerBench:
    """A ledger, and how it is asked for one key."""

    driver: type[Engine]

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def ledger(self, engine: Engine) -> Ledger:
        assert engine.ledger is not None
        return engine.ledger

    async def pass_time(self, clock: FakeClock, seconds: float) -> None:
        """Let so much time pass for the engine; a true sleep where it keeps time."""
        clock.advance(seconds)

    async def begun(
        self,
        ledger: Ledger,
        key: str = "k",
        *,
        generation: int = 0,
        holder: str = "",
        lease: float = 30.0,
        body: bytes | None = None,
    ) -> LedgerClaim:
        """Return the answer to beginning one key."""
        asked = LedgerKey(
            "orders", key, generation, holder, None if body is None else body_digest(body)
        )
        (claim,) = await ledger.begin([asked], lease=lease)
        assert claim.key == asked
        return claim

    async def finished(self, ledger: Ledger, claim: LedgerClaim, state: LedgerState) -> bool:
        """Return whether a claim was still ours to finish."""
        (ours,) = await ledger.finish([(claim, state)], ttl=TTL)
        return ours


class BodiesContract(LedgerBench):
    """Another body under a finished key is told from the one that was worked."""

    @pytest.mark.parametrize("state", [DONE, DEAD, FAILED])
    async def test_another_body_under_a_finished_key_is_a_conflict(
        self, ledger: Ledger, state: LedgerState
    ) -> None:
        first = await self.begun(ledger, generation=1, body=b"one")
        await self.finished(ledger, first, state)

        same = await self.begun(ledger, body=b"one")
        other = await self.begun(ledger, body=b"two")
        unknown = await self.begun(ledger)

        assert [one.conflict for one in (same, other, unknown)] == [False, True, False]
        assert {one.state for one in (same, other, unknown)} == {state}
        assert not any(one.mine for one in (same, other, unknown))

    async def test_another_body_under_a_key_somebody_works_on_has_to_wait(
        self, ledger: Ledger
    ) -> None:
        await self.begun(ledger, body=b"one")

        claim = await self.begun(ledger, body=b"two")

        assert (claim.state, claim.conflict) == (BUSY, False)

    async def test_a_message_takes_over_a_claim_of_its_own_body_only(self, ledger: Ledger) -> None:
        await self.begun(ledger, holder="m-1", body=b"one")

        other = await self.begun(ledger, holder="m-1", body=b"two")
        same = await self.begun(ledger, holder="m-1", body=b"one")
        unknown = await self.begun(ledger, holder="m-1")

        assert (other.mine, other.state) == (False, BUSY)
        assert (same.mine, unknown.mine) == (True, True)

    async def test_a_key_finished_without_a_digest_is_the_same_for_every_body(
        self, ledger: Ledger
    ) -> None:
        await self.finished(ledger, await self.begun(ledger), DONE)

        claim = await self.begun(ledger, body=b"any")
        (state,) = await ledger.look([claim.key])

        assert (claim.mine, claim.conflict, state) == (False, False, DONE)

    async def test_what_failed_is_not_among_the_bodies_that_were_worked(
        self, ledger: Ledger
    ) -> None:
        await self.finished(ledger, await self.begun(ledger, body=b"one"), FAILED)
        await self.finished(ledger, await self.begun(ledger, body=b"two"), DONE)

        first = await self.begun(ledger, body=b"one")
        second = await self.begun(ledger, body=b"two")

        assert (first.conflict, second.conflict) == (True, False)

    async def test_a_replay_with_an_edited_body_is_no_conflict(self, ledger: Ledger) -> None:
        await self.finished(ledger, await self.begun(ledger, body=b"broken"), DEAD)
        edited = await self.begun(ledger, generation=1, body=b"mended")
        await self.finished(ledger, edited, DONE)

        late = await self.begun(ledger, body=b"broken")
        again = await self.begun(ledger, generation=1, body=b"mended")
        other = await self.begun(ledger, body=b"other")

        assert edited.mine
        assert (late.conflict, again.conflict, other.conflict) == (False, False, True)

    async def test_the_bodies_of_the_last_generations_are_known(self, ledger: Ledger) -> None:
        for generation in range(6):
            body = b"%d" % generation
            claim = await self.begun(ledger, generation=generation, body=body)
            await self.finished(ledger, claim, DONE)

        claims = [await self.begun(ledger, body=b"%d" % n) for n in range(6)]

        assert [one.conflict for one in claims] == [True] * 2 + [False] * 4

    async def test_whoever_looks_for_another_body_finds_nothing(self, ledger: Ledger) -> None:
        claim = await self.begun(ledger, body=b"one")
        other = replace(claim.key, digest=body_digest(b"two"))
        busy = await ledger.look([claim.key, other])
        await self.finished(ledger, claim, DONE)

        assert busy == [BUSY, BUSY]
        assert await ledger.look([claim.key, other]) == [DONE, None]

    @pytest.mark.parametrize("holder", ["a b", "\0" + "0" * 32, "\0abc", " ", "\0"])
    async def test_digests_are_told_from_any_holder(self, ledger: Ledger, holder: str) -> None:
        first = await self.begun(ledger, holder=holder, body=b"one")
        again = await self.begun(ledger, holder=holder, body=b"one")
        await self.finished(ledger, again, DONE)
        other = await self.begun(ledger, holder=holder, body=b"two")
        unknown = await self.begun(ledger, "k-2", holder=holder)
        taken = await self.begun(ledger, "k-2", holder=holder)

        assert (first.mine, again.mine, other.conflict) == (True, True, True)
        assert (unknown.mine, taken.mine) == (True, True)


_keys = st.lists(
    st.builds(LedgerKey, st.text(max_size=9), st.text(max_size=20)),
    max_size=30,
    unique_by=lambda key: (key.mailbox, key.key),
)


class LedgerContract(BodiesContract):
    """
    Work is done once per key and generation, and taken up again after a failure.

    A backend's test class gives a fixture `engine` opened on the `clock` it is
    handed, with a ledger that is empty, and names its engine class as `driver`.
    """

    async def test_a_new_key_is_ours(self, ledger: Ledger) -> None:
        claim = await self.begun(ledger)

        assert (claim.mine, claim.state) == (True, BUSY)

    async def test_a_key_somebody_works_on_is_not_ours(self, ledger: Ledger) -> None:
        await self.begun(ledger)

        claim = await self.begun(ledger)

        assert (claim.mine, claim.state) == (False, BUSY)

    async def test_a_key_that_was_processed_is_not_done_again(
        self, ledger: Ledger, clock: FakeClock
    ) -> None:
        first = await self.begun(ledger)
        assert await self.finished(ledger, first, DONE)
        await self.pass_time(clock, 100.0)

        claim = await self.begun(ledger)

        assert (claim.mine, claim.state) == (False, DONE)

    @pytest.mark.parametrize("state", [FAILED, DEAD])
    async def test_a_key_that_failed_may_be_tried_again(
        self, ledger: Ledger, state: LedgerState
    ) -> None:
        await self.finished(ledger, await self.begun(ledger), state)

        claim = await self.begun(ledger)

        assert (claim.mine, claim.state) == (True, BUSY)

    async def test_a_claim_runs_out(self, ledger: Ledger, clock: FakeClock) -> None:
        await self.begun(ledger, lease=10.0)

        await self.pass_time(clock, 9.0)
        too_early = await self.begun(ledger)
        await self.pass_time(clock, 1.0)
        in_time = await self.begun(ledger)

        assert (too_early.mine, in_time.mine) == (False, True)

    async def test_a_message_takes_over_its_own_claim(self, ledger: Ledger) -> None:
        fenced = await self.begun(ledger, holder="m-1")

        other = await self.begun(ledger, holder="m-2")
        same = await self.begun(ledger, holder="m-1")

        assert (other.mine, same.mine) == (False, True)
        assert not await self.finished(ledger, fenced, DONE)
        assert await self.finished(ledger, same, DONE)

    async def test_what_was_processed_is_not_taken_over(self, ledger: Ledger) -> None:
        first = await self.begun(ledger, holder="m-1")
        await self.finished(ledger, first, DONE)

        again = await self.begun(ledger, holder="m-1")

        assert (again.mine, again.state) == (False, DONE)

    async def test_a_higher_generation_reopens_a_key(self, ledger: Ledger) -> None:
        await self.finished(ledger, await self.begun(ledger), DONE)

        replayed = await self.begun(ledger, generation=1)
        late = await self.begun(ledger, generation=0)

        assert (replayed.mine, late.mine) == (True, False)

    async def test_a_higher_generation_fences_a_lower_one(self, ledger: Ledger) -> None:
        old = await self.begun(ledger)
        new = await self.begun(ledger, generation=1)

        assert not await self.finished(ledger, old, FAILED)
        assert await self.finished(ledger, new, DONE)
        assert (await self.begun(ledger, generation=1)).state == DONE

    async def test_finishing_again_the_same_way_is_fine(self, ledger: Ledger) -> None:
        claim = await self.begun(ledger)

        assert await self.finished(ledger, claim, DONE)
        assert await self.finished(ledger, claim, DONE)

    async def test_an_outcome_is_not_changed_afterwards(self, ledger: Ledger) -> None:
        claim = await self.begun(ledger)
        await self.finished(ledger, claim, DONE)

        assert not await self.finished(ledger, claim, FAILED)
        assert (await ledger.look([claim.key])) == [DONE]

    async def test_a_claim_that_ran_out_is_ours_until_somebody_takes_it(
        self, ledger: Ledger, clock: FakeClock
    ) -> None:
        slow = await self.begun(ledger, lease=10.0)
        await self.pass_time(clock, 20.0)
        assert await self.finished(ledger, slow, FAILED)

        await self.begun(ledger)

        assert not await self.finished(ledger, slow, FAILED)

    async def test_only_the_fenced_of_a_batch_are_refused(
        self, ledger: Ledger, clock: FakeClock
    ) -> None:
        keys = [LedgerKey("orders", f"k-{i}") for i in range(6)]
        claims = await ledger.begin(keys, lease=10.0)
        await self.pass_time(clock, 11.0)
        await ledger.begin(keys[::2], lease=10.0)

        ours = await ledger.finish([(claim, DONE) for claim in claims], ttl=TTL)

        assert ours == [False, True] * 3
        assert await ledger.look(keys) == [BUSY, DONE] * 3

    async def test_a_key_asked_for_twice_in_a_batch_is_given_once(self, ledger: Ledger) -> None:
        key = LedgerKey("orders", "k")

        claims = await ledger.begin([key, key, LedgerKey("orders", "k", 1)], lease=30.0)

        assert [claim.mine for claim in claims] == [False, False, True]

    async def test_looking_claims_nothing(self, ledger: Ledger) -> None:
        key = LedgerKey("orders", "k")

        before = await ledger.look([key])
        claim = await self.begun(ledger)
        during = await ledger.look([key, LedgerKey("orders", "k", 1)])

        assert (before, during) == ([None], [BUSY, None])
        assert claim.mine

    async def test_finished_keys_are_forgotten_when_their_time_is_over(
        self, ledger: Ledger, clock: FakeClock
    ) -> None:
        await self.finished(ledger, await self.begun(ledger, "done"), DONE)
        await self.begun(ledger, "busy")

        await self.pass_time(clock, TTL - 1)
        too_early = await ledger.forget()
        await self.pass_time(clock, 1.0)
        in_time = await ledger.forget()

        assert (too_early, in_time) == (0, 1)
        assert (await self.begun(ledger, "done")).mine
        assert await ledger.look([LedgerKey("orders", "busy")]) == [BUSY]

    async def test_claims_nobody_will_finish_are_forgotten_if_asked_for(
        self, ledger: Ledger, clock: FakeClock
    ) -> None:
        done = await self.begun(ledger, "done")
        await self.finished(ledger, done, DONE)
        await self.begun(ledger, "left", lease=1.0)
        await self.begun(ledger, "later", lease=3.0)

        await self.pass_time(clock, 2.0)
        too_early = await ledger.forget(abandoned=2.0)
        await self.pass_time(clock, 1.0)
        unasked = await ledger.forget()
        in_time = await ledger.forget(abandoned=2.0)

        keys = [LedgerKey("orders", name) for name in ("done", "left", "later")]
        assert (too_early, unasked, in_time) == (0, 0, 1)
        assert await ledger.look(keys) == [DONE, None, BUSY]

    async def test_a_claim_that_was_taken_up_again_is_not_left(
        self, ledger: Ledger, clock: FakeClock
    ) -> None:
        await self.begun(ledger, lease=1.0)
        await self.pass_time(clock, 3.0)
        again = await self.begun(ledger, lease=30.0)

        assert await ledger.forget(abandoned=1.0) == 0
        assert await self.finished(ledger, again, DONE)

    async def test_forgetting_claims_is_bounded_as_well(
        self, ledger: Ledger, clock: FakeClock
    ) -> None:
        keys = [LedgerKey("orders", str(i)) for i in range(6)]
        claims = await ledger.begin(keys, lease=1.0)
        await ledger.finish([(claim, DONE) for claim in claims[:2]], ttl=1.0)
        await self.pass_time(clock, 2.0)

        gone = [await ledger.forget(limit=3, abandoned=1.0) for _ in range(3)]

        assert gone == [3, 3, 0]

    async def test_forgetting_is_bounded(self, ledger: Ledger, clock: FakeClock) -> None:
        keys = [LedgerKey("orders", str(i)) for i in range(5)]
        claims = await ledger.begin(keys, lease=30.0)
        await ledger.finish([(claim, DONE) for claim in claims], ttl=1.0)
        await self.pass_time(clock, 1.0)

        assert [await ledger.forget(limit=3) for _ in range(3)] == [3, 2, 0]

    async def test_mailboxes_do_not_share_keys(self, ledger: Ledger) -> None:
        asked = [LedgerKey("orders", "k"), LedgerKey("returns", "k")]

        claims = await ledger.begin(asked, lease=30.0)

        assert [claim.mine for claim in claims] == [True, True]

    async def test_of_many_who_begin_at_once_one_wins(self, ledger: Ledger) -> None:
        claims = await asyncio.gather(*(self.begun(ledger) for _ in range(20)))

        assert sum(claim.mine for claim in claims) == 1

    async def test_no_keys_no_claims(self, ledger: Ledger) -> None:
        assert await ledger.begin([], lease=30.0) == []
        assert await ledger.finish([], ttl=TTL) == []
        assert await ledger.look([]) == []

    async def test_a_large_batch_is_like_a_small_one(self, ledger: Ledger) -> None:
        keys = [LedgerKey("orders", str(i)) for i in range(250)]
        claims = await ledger.begin(keys, lease=30.0)

        finished = await ledger.finish([(claim, DONE) for claim in claims], ttl=TTL)

        assert all(claim.mine for claim in claims)
        assert finished == [True] * 250
        assert await ledger.look(keys) == [DONE] * 250

    @given(keys=_keys)
    @settings(
        max_examples=40,
        deadline=None,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,  # forgotten by each example itself
            HealthCheck.differing_executors,  # that is what a contract is for
        ],
    )
    async def test_keys_may_be_any_text(
        self, ledger: Ledger, clock: FakeClock, keys: list[LedgerKey]
    ) -> None:
        claims = await ledger.begin(keys, lease=30.0)
        again = await ledger.begin(keys, lease=30.0)
        finished = await ledger.finish([(claim, DONE) for claim in claims], ttl=1.0)

        assert all(claim.mine for claim in claims)
        assert not any(claim.mine for claim in again)
        assert all(finished)
        await self.pass_time(clock, 1.0)
        assert await ledger.forget() == len(keys)
