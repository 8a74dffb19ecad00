"""
Errors that this package raises, and signals that handlers raise.

    DeadLetterError         everything this package raises
      ConfigError           an invalid setting or argument; the text says what to change
      QueryError            an invalid search; points at the offending token
      NotFound              no such letter, queue or replay
      Conflict              the object changed meanwhile, or its state forbids this
      BackendError          the broker or database reported an error
        Unavailable         ...temporary: a retry may succeed
          StoreLost         ...its file was removed or replaced: stop the process
        Refused             ...permanent: a retry will not succeed
        PartlySent          ...for some messages of a batch; says which were sent
      Malformed             a body that does not fit the handler's type
      LostLease             another worker holds this delivery now

    Signal                  not an error: a handler's decision about its message
      RetryLater, GiveUp, Ignore, LogicalFailure
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import inspect

from .failure import Ack, Bury, Continue, Decision, Reason, Retry

LONGEST_DELAY: Final = 366 * 86_400.0  # seconds: one year


class DeadLetterError(Exception):
    """The base class of all errors of this package."""


class ConfigError(DeadLetterError):
    """An invalid setting or argument; the text says what to change."""


class QueryError(DeadLetterError):
    """An invalid search; `at` is the position of the offending token."""

    def __init__(self, text: str, *, query: str = "", at: int = 0) -> None:
        pointer = f"\n  {query}\n  {' ' * at}^" if query and "\n" not in query else ""
        super().__init__(text + pointer)
        self.text = text
        self.query = query
        self.at = at


class NotFound(DeadLetterError):
    """The letter, mailbox or replay does not exist."""


def no_office(place: str) -> NotFound:
    """Return the error for a URL without an office."""
    return NotFound(
        f"there is no office at {place} yet: `dlq work` and `dlq send` create one; "
        "use --url or DLQ_URL to name another"
    )


class Conflict(DeadLetterError):
    """The object changed meanwhile, or its state forbids the operation."""


class BackendError(DeadLetterError):
    """The broker or database reported an error, which is the `__cause__`."""


class Unavailable(BackendError):
    """A temporary error: a retry may succeed."""


class StoreLost(Unavailable):
    """The file of the store was removed or replaced; the process must stop."""


class Refused(BackendError):
    """A permanent error: a retry will not succeed."""


class PartlySent(BackendError):
    """
    Not all messages of a batch were sent.

    `sent` and the keys of `refused` are places in the batch. Messages that are in
    neither may or may not have been sent: `cause` says what interrupted the sending.
    """

    def __init__(
        self,
        text: str = "",
        *,
        sent: Iterable[int] = (),
        refused: Mapping[int, DeadLetterError] | None = None,
        cause: DeadLetterError | None = None,
    ) -> None:
        self.sent = frozenset(sent)
        self.refused = dict(refused or {})
        self.cause = cause
        first = cause or next(iter(self.refused.values()), None)
        super().__init__(text or str(first or "not all messages were sent"))


class Malformed(DeadLetterError):
    """The body does not fit the handler's type. Never retried."""


class LostLease(DeadLetterError):
    """Another worker holds this delivery now: settling and replying are refused."""


class Signal(Exception):
    """A decision that a handler raises about its own message."""

    def __init__(self, decision: Decision, text: str) -> None:
        super().__init__(text)
        self.decision = decision


class RetryLater(Signal):
    """
    Retry this delivery after `delay` seconds, whatever the policy.

    The attempt is not charged, because nothing failed.
    """

    def __init__(self, delay: float, reason: str = "the handler asked for it") -> None:
        if not isinstance(delay, int | float):
            raise ConfigError(
                f"RetryLater(delay={delay!r}) is not a time to wait: use a number of seconds"
            )
        # 0.0 comes first, so that NaN becomes 0.
        bounded = min(max(0.0, delay), LONGEST_DELAY)
        super().__init__(Retry(bounded, charged=False), reason)


class GiveUp(Signal):
    """Bury the message now; further attempts would fail as well."""

    def __init__(self, reason: str) -> None:
        super().__init__(Bury(Reason.REJECTED, reason), reason)


class Ignore(Signal):
    """Acknowledge the message without processing it, and record the reason."""

    def __init__(self, reason: str = "ignored") -> None:
        super().__init__(Ack(reason), reason)


class LogicalFailure(Signal):
    """Record an expected business error and acknowledge the message."""

    def __init__(self, error: str) -> None:
        super().__init__(Continue(error), error)


# Valid choices, for errors about invalid ones.

_NO_CHOICE: Final = "Invalid enum value "  # the beginning of msgspec's error
_step: Final = re.compile(r"\[\.\.\.\]|[^.\[\]]+").findall
_place: Final = re.compile(r" - at `\$?\.?(.*)`$").search


def with_choices(said: str, kind: Any, place: str | None = None) -> str:
    """
    Return a validation error of msgspec with the valid choices appended.

    `place` is the path of the value, such as `targets[0].kind`, if the error does not name it.
    """
    if not said.startswith(_NO_CHOICE):
        return said
    found = _place(said)
    where = place if found is None else found[1]
    there = [inspect.type_info(kind)]
    for name in _step(where or ""):
        there = [inner for outer in there for inner in _inside(outer, name)]
    choices = [str(one) for outer in there for one in _choices(outer)]
    return f"{said}; it is one of {', '.join(choices)}" if choices else said


def _inside(kind: inspect.Type, name: str) -> Iterator[inspect.Type]:
    """Yield the types of a field, or of the items, of values of this type."""
    match kind:
        case inspect.StructType(fields=fields):
            yield from (one.type for one in fields if one.encode_name == name)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            yield item
        case inspect.DictType(value_type=value):
            yield value
        case inspect.UnionType(types=types):
            for one in types:
                yield from _inside(one, name)
        case inspect.Metadata(type=bare):
            yield from _inside(bare, name)


def _choices(kind: inspect.Type) -> Iterator[object]:
    match kind:
        case inspect.EnumType(cls=choice):
            yield from (one.value for one in choice)
        case inspect.LiteralType(values=values):
            yield from values
        case inspect.UnionType(types=types):
            for one in types:
                yield from _choices(one)
        case inspect.Metadata(type=bare):
            yield from _choices(bare)
