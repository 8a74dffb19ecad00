"""The ledger on a Redis server."""

import re
from collections.abc import Iterator, Sequence
from itertools import count
from secrets import randbits
from typing import Any, Final

from deadletter.brokers.redis_common.script_runner import (
    Argument,
    Script,
    ScriptRunner,
    retry_unanswered,
    seconds,
)
from deadletter.ports.engine import LedgerClaim, LedgerKey, LedgerState, refused_claim, standing

from .scripts import LEDGER_BEGIN, LEDGER_DROP, LEDGER_FINISH, LEDGER_FORGET, Keys

_KNOWN: Final = re.compile(rb"\0((?:[0-9a-f]{32})*)\Z")
_SLICE: Final = 500  # keys per script, so that other calls are not delayed


class RedisLedger:
    """Idempotency keys: which are processed, and which are being processed."""

    def __init__(self, runner: ScriptRunner, keys: Keys) -> None:
        self._runner = runner
        self._keys = keys
        self._tokens = count(randbits(40) << 22)
        self._known: set[str] = set()  # mailboxes whose ledger is on the list

    async def begin(self, keys: Sequence[LedgerKey], *, lease: float) -> Sequence[LedgerClaim]:
        """Claim keys for processing, those of one mailbox in one step."""
        asked = [(key, next(self._tokens)) for key in keys]
        found: dict[tuple[str, str], tuple[bytes, bytes, bytes]] = {}
        for mailbox, places in _by_mailbox(keys):
            await self._list(mailbox)
            args: list[Argument] = []
            for place in places:
                key, token = asked[place]
                digest = "" if key.digest is None else key.digest.hex()
                args += key.key, key.generation, token, key.holder, digest
            said = await self._run(LEDGER_BEGIN, mailbox, seconds(lease), *args)
            answers = zip(said[::3], said[1::3], said[2::3], strict=True)
            for place, answer in zip(places, answers, strict=True):
                found[mailbox, keys[place].key] = answer
        # Judged when all are done: a key asked for twice belongs to one of them.
        return [_claim(key, token, *found[key.mailbox, key.key]) for key, token in asked]

    async def finish(
        self, outcomes: Sequence[tuple[LedgerClaim, LedgerState]], *, ttl: float
    ) -> Sequence[bool]:
        """Record outcomes; return for each whether the claim was still ours."""
        answers = [False] * len(outcomes)
        for mailbox, places in _by_mailbox([claim.key for claim, _ in outcomes]):
            args: list[Argument] = []
            for place in places:
                claim, state = outcomes[place]
                args += claim.key.key, claim.token, state.value
            said = await self._run(LEDGER_FINISH, mailbox, seconds(ttl), *args)
            for place, answer in zip(places, said, strict=True):
                answers[place] = answer == 1
        return answers

    async def look(self, keys: Sequence[LedgerKey]) -> Sequence[LedgerState | None]:
        """Return the states of keys, without claiming them."""
        states: list[LedgerState | None] = [None] * len(keys)
        for mailbox, places in _by_mailbox(keys):
            entries, _ = self._keys.ledger(mailbox)
            names = [keys[place].key for place in places]
            said = await self._runner.command("HMGET", entries, *names)
            for place, entry in zip(places, said, strict=True):
                states[place] = _standing(entry, keys[place])
        return states

    async def forget(self, *, limit: int = 1000, abandoned: float | None = None) -> int:
        """Delete expired keys and abandoned claims; return how many."""
        listed = await self._runner.command("SMEMBERS", self._keys.ledgers)
        gone = 0
        for name in sorted(listed):
            mailbox = name.decode()
            while (room := min(limit - gone, _SLICE)) > 0:
                dropped = await self._run(LEDGER_FORGET, mailbox, room)
                gone += dropped
                if dropped < room:
                    break
            if abandoned is not None:
                gone += await self._forget_left(mailbox, abandoned, limit - gone)
        return gone

    async def _forget_left(self, mailbox: str, age: float, limit: int) -> int:
        # Claims have no index of their own, because every message would pay for it.
        cursor, gone = b"0", 0
        while limit > gone:
            cursor, dropped = await self._run(
                LEDGER_DROP, mailbox, seconds(age), cursor, limit - gone
            )
            gone += dropped
            if cursor == b"0":
                break
        return gone

    async def _list(self, mailbox: str) -> None:
        """List a mailbox's ledger, so that `forget` finds it, before it has entries."""
        if mailbox not in self._known:
            await self._runner.command("SADD", self._keys.ledgers, mailbox)
            self._known.add(mailbox)

    async def _run(self, script: Script, mailbox: str, *args: Argument) -> Any:
        # All of these may be repeated: a claim knows its own token.
        keys = self._keys.ledger(mailbox)
        return await retry_unanswered(lambda _: self._runner.timed(script, keys, *args))


def _by_mailbox(keys: Sequence[LedgerKey]) -> Iterator[tuple[str, list[int]]]:
    """Yield the positions of keys by mailbox, in slices."""
    places: dict[str, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key.mailbox, []).append(place)
    for mailbox, all_of_it in places.items():
        for start in range(0, len(all_of_it), _SLICE):
            yield mailbox, all_of_it[start : start + _SLICE]


def _claim(key: LedgerKey, asked: int, state: bytes, token: bytes, digests: bytes) -> LedgerClaim:
    stands = LedgerState(state.decode())
    if int(token) == asked:
        return LedgerClaim(key, True, stands, asked)
    return refused_claim(key, stands, bytes.fromhex(digests.decode()))


def _standing(entry: bytes | None, key: LedgerKey) -> LedgerState | None:
    if entry is None:
        return None
    its, state, rest = entry.split(b" ", 2)
    return standing(key, int(its), LedgerState(state.decode()), _digests(rest))


def _digests(rest: bytes) -> bytes | None:
    """Return what follows the last zero byte of an entry, if it is digests."""
    known = _KNOWN.search(rest)
    return bytes.fromhex(known[1].decode()) if known else None
