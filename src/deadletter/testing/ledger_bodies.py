"""What a ledger promises about different bodies under one key."""

import pytest
from msgspec.structs import replace

from deadletter.core.ids import body_digest
from deadletter.ports import Ledger, LedgerState

from .ledger_bench import BUSY, DEAD, DONE, FAILED, LedgerBench


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

    async def test_a_message_takes_over_a_claim_of_its_own_body_only(
        self, ledger: Ledger
    ) -> None:
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

    async def test_a_replay_with_an_edited_body_is_no_conflict(
        self, ledger: Ledger
    ) -> None:
        await self.finished(ledger, await self.begun(ledger, body=b"broken"), DEAD)
        edited = await self.begun(ledger, generation=1, body=b"mended")
        await self.finished(ledger, edited, DONE)

        late = await self.begun(ledger, body=b"broken")
        again = await self.begun(ledger, generation=1, body=b"mended")
        other = await self.begun(ledger, body=b"other")

        assert edited.mine
        assert (late.conflict, again.conflict, other.conflict) == (False, False, True)

    async def test_the_bodies_of_the_last_generations_are_known(
        self, ledger: Ledger
    ) -> None:
        for generation in range(6):
            body = b"%d" % generation
            claim = await self.begun(ledger, generation=generation, body=body)
            await self.finished(ledger, claim, DONE)

        claims = [await self.begun(ledger, body=b"%d" % n) for n in range(6)]

        assert [one.conflict for one in claims] == [True] * 2 + [False] * 4

    async def test_whoever_looks_for_another_body_finds_nothing(
        self, ledger: Ledger
    ) -> None:
        claim = await self.begun(ledger, body=b"one")
        other = replace(claim.key, digest=body_digest(b"two"))
        busy = await ledger.look([claim.key, other])
        await self.finished(ledger, claim, DONE)

        assert busy == [BUSY, BUSY]
        assert await ledger.look([claim.key, other]) == [DONE, None]

    @pytest.mark.parametrize("holder", ["a b", "\0" + "0" * 32, "\0abc", " ", "\0"])
    async def test_digests_are_told_from_any_holder(
        self, ledger: Ledger, holder: str
    ) -> None:
        first = await self.begun(ledger, holder=holder, body=b"one")
        again = await self.begun(ledger, holder=holder, body=b"one")
        await self.finished(ledger, again, DONE)
        other = await self.begun(ledger, holder=holder, body=b"two")
        unknown = await self.begun(ledger, "k-2", holder=holder)
        taken = await self.begun(ledger, "k-2", holder=holder)

        assert (first.mine, again.mine, other.conflict) == (True, True, True)
        assert (unknown.mine, taken.mine) == (True, True)
