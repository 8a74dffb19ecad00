"""Finding out who asks: by token, by session, or because access is off."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from hmac import compare_digest
from ipaddress import IPv6Address, ip_address
from typing import Final, TypeAlias

from litestar.exceptions import (
    NotAuthorizedException,
    PermissionDeniedException,
    TooManyRequestsException,
)
from msgspec import Struct

from deadletter.core.access import Identity, Role, Session, Token, to_the_hour
from deadletter.core.errors import BackendError, Unavailable
from deadletter.core.letter import By
from deadletter.ports import AccessStore, LetterStore
from deadletter.ports import Clock as PortsClock
from deadletter.ports.features import Clock
from deadletter.queue_server.waiting_requests import RequestBatcher, TryAgain

from .hosts import Connection, refuse_tokens_in_urls
from .keys import session_hash, token_hash

_ADDRESS_BURST: Final = 10
_ADDRESS_EVERY: Final = 30.0  # seconds until one more is allowed
_TOTAL_BURST: Final = 100
_TOTAL_EVERY: Final = 3.0
_TOTAL: Final = ""  # no address


class Failures:
    """
    Counts failures, and says how long to wait before the next try.

    Each address may fail ten times at once and then once in half a minute; all
    together a hundred times and then once in three seconds. What is over is
    forgotten, so at most a few hundred addresses are remembered at any time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._clear_at: dict[str, float] = {}  # when all is forgiven

    def spend(self, address: str | None) -> float:
        """
        Count a failure; or the seconds to wait, and it is not counted.
        """
        now = self._clock.monotonic()
        who = _neighbourhood(address)
        self._forget(now)
        wait = max(
            self._clear_at.get(who, now) - now - (_ADDRESS_BURST - 1) * _ADDRESS_EVERY,
            self._clear_at.get(_TOTAL, now) - now - (_TOTAL_BURST - 1) * _TOTAL_EVERY,
        )
        if wait > 0:
            return wait
        self._add(who, _ADDRESS_EVERY, now)
        self._add(_TOTAL, _TOTAL_EVERY, now)
        return 0.0

    def is_spent(self, address: str | None) -> bool:
        """Return whether this address has used up its failed attempts."""
        left = self._clear_at.get(_neighbourhood(address), 0.0)
        burst = (_ADDRESS_BURST - 1) * _ADDRESS_EVERY
        return left - self._clock.monotonic() > burst

    def __len__(self) -> int:
        """Return the number of addresses that are remembered."""
        return len(self._clear_at)

    def _add(self, who: str, seconds: float, now: float) -> None:
        self._clear_at[who] = self._clear_at.get(who, now) + seconds

    def _forget(self, now: float) -> None:
        over = [who for who, clear in self._clear_at.items() if clear <= now]
        for who in over:
            del self._clear_at[who]


def _neighbourhood(address: str | None) -> str:
    """Return the network to count as one address: for IPv6 the /64 of one host."""
    try:
        parsed = ip_address(address or "")
    except ValueError:
        return "unknown"
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return f"{parsed.packed[:8].hex()}::/64"


# Answers that take long end when whoever asked is let in no more.
# One look every few seconds serves all that wait with the same token or session, and
# there is none while nobody waits.

EVERY: Final = 1.5  # seconds between two looks
BLIND: Final = 5.0  # seconds without a look after which nobody counts as known

Credential: TypeAlias = Token | Session
Gone: TypeAlias = Callable[[], object]
"""Called once, when a caller is let in no more."""


class _Holder:
    """One token or session, and all that wait with it."""

    __slots__ = ("credential", "seen_at", "waiting")

    def __init__(self, credential: Credential, seen_at: float) -> None:
        self.credential = credential
        self.seen_at = seen_at
        self.waiting: dict[object, Gone] = {}


class Watch:
    """Looks after everybody who waits for an answer of one server."""

    def __init__(self, access: AccessStore, clock: PortsClock) -> None:
        self._access = access
        self._clock = clock
        self._holders: dict[str, _Holder] = {}  # by the hash of what they have shown
        self._timer: asyncio.TimerHandle | None = None
        self._look: asyncio.Task[None] | None = None

    @contextmanager
    def watching(self, credential: Credential, gone: Gone) -> Iterator[None]:
        """Within, `gone` is called when the token or session is good no more."""
        now = self._clock.monotonic()
        holder = self._holders.setdefault(credential.hash, _Holder(credential, now))
        key = object()
        holder.waiting[key] = gone
        self._arm()
        try:
            yield
        finally:
            holder.waiting.pop(key, None)
            if not holder.waiting and self._holders.get(credential.hash) is holder:
                del self._holders[credential.hash]

    def _arm(self) -> None:
        if self._timer is None and self._look is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(EVERY, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._holders:
            self._look = asyncio.get_running_loop().create_task(self._look_at_all())

    async def _look_at_all(self) -> None:
        try:
            for holder in list(self._holders.values()):
                if not await self._is_good(holder):
                    for gone in list(holder.waiting.values()):
                        gone()
        finally:
            self._look = None
            if self._holders:
                self._arm()

    async def _is_good(self, holder: _Holder) -> bool:
        asked_at = self._clock.monotonic()
        known = holder.credential
        try:
            async with asyncio.timeout(BLIND):
                found: Credential | None
                if isinstance(known, Session):
                    found = await self._access.session(known.hash)
                else:
                    found = await self._access.token(known.hash)
                    if found is not None and found.is_over(self._clock.now()):
                        found = None
        except (BackendError, TimeoutError):
            return self._clock.monotonic() - holder.seen_at <= BLIND
        holder.seen_at = asked_at
        return found is not None and found.to == known.to


LOCAL: Final = Identity(name="local", role=Role.ADMIN)
CSRF_HEADER: Final = "x-csrf-token"
_TOGETHER: Final = 256  # tokens looked for at once
_WAITING: Final = 100_000
_PATIENCE: Final = 30.0  # seconds
_FAILED: Final = "too many failed sign-ins"
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Caller(Struct, frozen=True):
    """The caller of a request, with its session or token."""

    who: Identity
    session: Session | None = None
    token: Token | None = None


class Authenticator:
    """Knows everybody who may come in. One for each server."""

    def __init__(self, access: AccessStore | None, clock: PortsClock) -> None:
        self.access = access
        self.clock = clock
        self._sign_ins = Failures(clock)
        self._bearers = Failures(clock)
        self._watch = None if access is None else Watch(access, clock)
        self._looks: RequestBatcher[str, Token | None] = RequestBatcher(
            self._look, most=_TOGETHER, limit=_WAITING
        )

    async def caller(self, connection: Connection) -> Caller:
        """
        Return the caller; raises 401 with the same text for every invalid token.

        A token that is shown is judged alone: nobody falls back on a cookie.
        """
        refuse_tokens_in_urls(connection)
        if self.access is None:
            return Caller(LOCAL)
        shown = connection.headers.getall("authorization", [])
        if shown:
            return await self._by_token(connection, shown)
        cookie = connection.cookies.get(cookie_name(connection))
        if cookie is None:
            raise unknown()
        return await self._by_session(connection, self.access, cookie)

    def watching(self, caller: Caller, gone: Gone) -> AbstractContextManager[None]:
        """Within, `gone` is called when the caller would be let in no more."""
        shown = caller.session or caller.token
        if self._watch is None or shown is None:
            return nullcontext()
        return self._watch.watching(shown, gone)

    async def sign_in(self, connection: Connection, shown: str, store: LetterStore) -> Token:
        """
        The token somebody signs in with: 401, or 429 after too many failures.

        A good token is let in however many failed before it: they may be anybody
        behind the same address. Secrets are not guessed, so that costs no safety.
        """
        token = await self.token(shown)
        if token is not None:
            return token
        asking = address(connection)
        if wait := self._sign_ins.spend(asking):
            raise too_many(wait)
        if self._sign_ins.is_spent(asking):
            # Each failure in the audit would let anybody fill it.
            await store.record("block", f"address:{asking}", By("dlq serve", _FAILED))
        raise unknown()

    async def token(self, shown: str) -> Token | None:
        """The token that is shown, if it is good now."""
        assert self.access is not None
        hash_ = token_hash(shown)
        try:
            token = await self._looks.ask(hash_, size=1, within=_PATIENCE)
        except TryAgain as error:
            raise Unavailable("too many wait to be let in") from error
        if token is None or not compare_digest(token.hash, hash_):
            return None
        if token.is_over(self.clock.now()):
            return None
        await self._used(self.access, token)
        return token

    async def _look(self, hashes: Sequence[str]) -> list[Token | None]:
        """
        The tokens with these hashes, those asked for by many looked for once.

        Whoever asks while this goes on gets another look, so nobody is answered
        with what was so before they asked: what is revoked is revoked.
        """
        assert self.access is not None
        wanted = list(dict.fromkeys(hashes))
        found = await asyncio.gather(*map(self.access.token, wanted))
        tokens = dict(zip(wanted, found, strict=True))
        return [tokens[hash_] for hash_ in hashes]

    async def _by_token(self, connection: Connection, shown: list[str]) -> Caller:
        scheme, _, text = shown[0].partition(" ")
        is_one = len(shown) == 1 and scheme.lower() == "bearer"
        token = await self.token(text.strip() if is_one else "")
        if token is not None:
            return Caller(token.to, token=token)
        # Only those who are wrong ever wait: a stale token of a neighbour behind
        # the same address must not shut out a service whose own is good.
        wait = self._bearers.spend(address(connection))
        raise too_many(wait) if wait else unknown()

    async def _by_session(self, connection: Connection, access: AccessStore, cookie: str) -> Caller:
        session = await access.session(session_hash(cookie))
        if session is None:
            raise unknown()
        is_change = connection.scope.get("method") not in _SAFE
        if is_change and not shows_proof(connection, session):
            raise PermissionDeniedException(
                f"with a session, changes need its CSRF token in {CSRF_HEADER}"
            )
        return Caller(session.to, session)

    async def _used(self, access: AccessStore, token: Token) -> None:
        if token.last_used_at == to_the_hour(self.clock.now()):
            return
        try:
            await access.used(token.id)
        except BackendError:
            # A full disk is when people most need to look.
            return


def shows_proof(connection: Connection, session: Session) -> bool:
    """Return whether a request carries the secret that only our pages know."""
    proof = connection.headers.get(CSRF_HEADER, "")
    return compare_digest(proof.encode(), session.csrf.encode())


def address(connection: Connection) -> str | None:
    """Return the address of the client, as the server sees it."""
    return connection.client.host if connection.client else None


def is_https(connection: Connection) -> bool:
    """Return whether the request came by HTTPS, according to the server or its proxy."""
    return bool(connection.scope.get("scheme") in {"https", "wss"})


def cookie_name(connection: Connection) -> str:
    """With https under a name that no neighbouring site can set."""
    return "__Host-dlq" if is_https(connection) else "dlq"


def too_many(wait: float) -> TooManyRequestsException:
    """Not now: and when."""
    return TooManyRequestsException(
        "too many wrong tokens", headers={"Retry-After": str(int(wait) + 1)}
    )


def unknown() -> NotAuthorizedException:
    """Whoever this is: the same for all that may be wrong."""
    return NotAuthorizedException(
        "a valid token or session is needed",
        headers={"WWW-Authenticate": 'Bearer realm="deadletter"'},
    )
