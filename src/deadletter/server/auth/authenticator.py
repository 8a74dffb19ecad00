"""Authentication of callers: by token, by session, or as local if access is off."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from hmac import compare_digest
from ipaddress import IPv6Address, ip_address
from typing import Final, TypeAlias

from litestar import Request
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

from .codes import SignInCodes, is_code
from .hosts import Connection, refuse_tokens_in_urls
from .keys import session_hash, token_hash
from .masks import unmask

_ADDRESS_BURST: Final = 10
_ADDRESS_EVERY: Final = 30.0  # seconds until one more is allowed
_TOTAL_BURST: Final = 100
_TOTAL_EVERY: Final = 3.0
_TOTAL: Final = ""  # the key of all addresses together


class Failures:
    """
    A rate limit for failed attempts, by address.

    Each address may fail ten times at once and then once in 30 seconds; all addresses
    together may fail a hundred times and then once in three seconds. Expired records
    are deleted, so at most a few hundred addresses are stored at any time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._clear_at: dict[str, float] = {}  # when all failures have expired

    def spend(self, address: str | None) -> float:
        """Count a failure and return 0, or return the seconds to wait without counting it."""
        now = self._clock.monotonic()
        who = _network(address)
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
        left = self._clear_at.get(_network(address), 0.0)
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


def _network(address: str | None) -> str:
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


# Long answers end when the caller loses access. One query every few seconds serves all
# requests with the same token or session; without such requests there is no query.

EVERY: Final = 1.5  # seconds between two queries
BLIND: Final = 5.0  # seconds without an answer of the store after which access is lost

Credential: TypeAlias = Token | Session
OnRevoked: TypeAlias = Callable[[], object]
"""Called once, when a caller loses access."""


class _Holder:
    """One token or session, and the requests in progress with it."""

    __slots__ = ("credential", "seen_at", "waiting")

    def __init__(self, credential: Credential, seen_at: float) -> None:
        self.credential = credential
        self.seen_at = seen_at
        self.waiting: dict[object, OnRevoked] = {}


class CredentialWatch:
    """A watch that notices revoked and expired credentials of long requests."""

    def __init__(self, access: AccessStore, clock: PortsClock) -> None:
        self._access = access
        self._clock = clock
        self._holders: dict[str, _Holder] = {}  # by the hash of the credential
        self._timer: asyncio.TimerHandle | None = None
        self._look: asyncio.Task[None] | None = None

    @contextmanager
    def watching(self, credential: Credential, on_revoked: OnRevoked) -> Iterator[None]:
        """Call `on_revoked` when the token or session becomes invalid during the block."""
        now = self._clock.monotonic()
        holder = self._holders.setdefault(credential.hash, _Holder(credential, now))
        key = object()
        holder.waiting[key] = on_revoked
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
                    for on_revoked in list(holder.waiting.values()):
                        on_revoked()
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
CSRF_FIELD: Final = "csrf"
FORM: Final = "application/x-www-form-urlencoded"
_TOGETHER: Final = 256  # tokens in one query
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
    """The authenticator of one server."""

    def __init__(
        self, access: AccessStore | None, clock: PortsClock, codes: SignInCodes | None = None
    ) -> None:
        self.access = access
        self.clock = clock
        self._codes = codes
        self._sign_ins = Failures(clock)
        self._bearers = Failures(clock)
        self._watch = None if access is None else CredentialWatch(access, clock)
        self._looks: RequestBatcher[str, Token | None] = RequestBatcher(
            self._look, most=_TOGETHER, limit=_WAITING
        )

    async def caller(self, connection: Connection) -> Caller:
        """
        Return the caller; raises 401 with the same text for every invalid token.

        If a request has a token, its cookie is ignored.
        """
        refuse_tokens_in_urls(connection)
        if self.access is None:
            return Caller(LOCAL)
        shown = connection.headers.getall("authorization", [])
        if shown:
            return await self._by_token(connection, shown)
        cookie = connection.cookies.get(cookie_name(connection))
        if cookie is None:
            raise unauthenticated()
        return await self._by_session(connection, self.access, cookie)

    def watching(self, caller: Caller, on_revoked: OnRevoked) -> AbstractContextManager[None]:
        """Call `on_revoked` when the caller loses access during the block."""
        credential = caller.session or caller.token
        if self._watch is None or credential is None:
            return nullcontext()
        return self._watch.watching(credential, on_revoked)

    async def sign_in(self, connection: Connection, shown: str, store: LetterStore) -> Token:
        """
        Return the token of a sign-in; raise 401, or 429 after too many failures.

        `shown` is a token, or a one-time code that stands for one.

        A valid token is accepted regardless of earlier failures, which may come from
        other people with the same address. Secrets are too long to be guessed.
        """
        token = await (self._by_code(shown) if is_code(shown) else self.token(shown))
        if token is not None:
            return token
        await self.count_failure(connection, store)
        raise unauthenticated()

    async def count_failure(self, connection: Connection, store: LetterStore) -> None:
        """Count a failed sign-in of this address; raises 429 after too many."""
        client = address(connection)
        if wait := self._sign_ins.spend(client):
            raise too_many(wait)
        if self._sign_ins.is_spent(client):
            # Only the last failure is recorded: otherwise anybody could fill the audit.
            await store.record("block", f"address:{client}", By("dlq serve", _FAILED))

    def check_failures(self, connection: Connection) -> None:
        """Raise 429 if this address has used up its failed sign-ins."""
        if self._sign_ins.is_spent(address(connection)):
            raise too_many(_ADDRESS_EVERY)

    async def token(self, shown: str) -> Token | None:
        """Return the token with this secret, if it is valid now."""
        return await self._by_hash(token_hash(shown))

    async def _by_code(self, shown: str) -> Token | None:
        hash_ = None if self._codes is None else self._codes.redeem(shown)
        return None if hash_ is None else await self._by_hash(hash_)

    async def _by_hash(self, hash_: str) -> Token | None:
        assert self.access is not None
        try:
            token = await self._looks.ask(hash_, size=1, within=_PATIENCE)
        except TryAgain as error:
            raise Unavailable("too many requests wait for authentication: retry later") from error
        if token is None or not compare_digest(token.hash, hash_):
            return None
        if token.is_over(self.clock.now()):
            return None
        await self._used(self.access, token)
        return token

    async def _look(self, hashes: Sequence[str]) -> list[Token | None]:
        """
        Return the tokens with these hashes; each hash is looked up once.

        Requests that arrive during the query wait for the next one, so that a revoked
        token is never accepted.
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
        # Only invalid tokens are limited: an expired token of one service must not lock
        # out another service with the same address and a valid token.
        wait = self._bearers.spend(address(connection))
        raise too_many(wait) if wait else unauthenticated()

    async def _by_session(self, connection: Connection, access: AccessStore, cookie: str) -> Caller:
        session = await access.session(session_hash(cookie))
        if session is None:
            raise unauthenticated()
        is_change = connection.scope.get("method") not in _SAFE
        if is_change and not (
            has_csrf_token(connection, session) or await _has_csrf_field(connection, session)
        ):
            raise PermissionDeniedException(
                f"changes with a session need its CSRF token: send it in {CSRF_HEADER}"
            )
        return Caller(session.to, session)

    async def _used(self, access: AccessStore, token: Token) -> None:
        if token.last_used_at == to_the_hour(self.clock.now()):
            return
        try:
            await access.used(token.id)
        except BackendError:
            # Reading must work even if the store cannot be written, as on a full disk.
            return


def has_csrf_token(connection: Connection, session: Session) -> bool:
    """Return whether a request carries the CSRF token of the session."""
    return _is_proof(connection.headers.get(CSRF_HEADER, ""), session)


async def _has_csrf_field(connection: Connection, session: Session) -> bool:
    """Return whether a form of a page carries the CSRF token, for browsers without scripts."""
    if not isinstance(connection, Request) or connection.content_type[0] != FORM:
        return False
    proof = (await connection.form()).get(CSRF_FIELD, "")
    return isinstance(proof, str) and _is_proof(proof, session)


def _is_proof(shown: str, session: Session) -> bool:
    return compare_digest(unmask(shown).encode(), session.csrf.encode())


def address(connection: Connection) -> str | None:
    """Return the address of the client, as the server sees it."""
    return connection.client.host if connection.client else None


def is_https(connection: Connection) -> bool:
    """Return whether the request came by HTTPS, according to the server or its proxy."""
    return bool(connection.scope.get("scheme") in {"https", "wss"})


def cookie_name(connection: Connection) -> str:
    """Return the name of the cookie; with HTTPS one that no other site can set."""
    return "__Host-dlq" if is_https(connection) else "dlq"


def too_many(wait: float) -> TooManyRequestsException:
    """Return a 429 error with the time after which to retry."""
    return TooManyRequestsException(
        "too many invalid tokens: retry later", headers={"Retry-After": str(int(wait) + 1)}
    )


def unauthenticated() -> NotAuthorizedException:
    """Return a 401 error, the same for every reason."""
    return NotAuthorizedException(
        "a valid token or session is required",
        headers={"WWW-Authenticate": 'Bearer realm="deadletter"'},
    )
