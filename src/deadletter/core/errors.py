"""
What can go wrong, and what a handler may ask for.

    DeadLetterError         everything this package raises
      ConfigError           you told us something that cannot be
      QueryError            ...in a search; points at the offending token
      NotFound              no such letter, queue or replay
      Conflict              it changed under you; look again
      BackendError          the broker or database said no
        Unavailable         ...for now: trying again may help
          StoreLost         ...its file was removed or replaced: stop the process
        Refused             ...for good: trying again will not
        PartlySent          ...to some messages of a batch; says which were sent
      Malformed             a body that cannot be what the handler asked for
      LostLease             somebody else has this delivery now

    Signal                  not an error: a handler's say in its own fate
      RetryLater, GiveUp, Ignore, LogicalFailure
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias

from .decision import Ack, Bury, Continue, Decision, Reason, Retry

LONGEST_DELAY: Final = 366 * 86_400.0  # no clock is asked for more than a year


class DeadLetterError(Exception):
    """Everything this package raises."""


class ConfigError(DeadLetterError):
    """You told us something that cannot be; the text says what to change."""


class QueryError(DeadLetterError):
    """A search that cannot be read; `at` is where it stops making sense."""

    def __init__(self, text: str, *, query: str = "", at: int = 0) -> None:
        pointer = f"\n  {query}\n  {' ' * at}^" if query and "\n" not in query else ""
        super().__init__(text + pointer)
        self.text = text
        self.query = query
        self.at = at


class NotFound(DeadLetterError):
    """No such letter, queue or replay."""


class Conflict(DeadLetterError):
    """It changed under you, or is not in a state that allows this."""


class BackendError(DeadLetterError):
    """The broker or database said no; its own error is the `__cause__`."""


class Unavailable(BackendError):
    """...for now: trying again may help."""


class StoreLost(Unavailable):
    """The file of the store was removed or replaced: this process must stop."""


class Refused(BackendError):
    """...for good: trying again will not."""


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
    """A body that cannot be what the handler asked for. Never retried."""


class LostLease(DeadLetterError):
    """Somebody else has this delivery now; it cannot be settled or replied to."""


ErrorTable: TypeAlias = Mapping[type[Exception], type[BackendError]]


@contextmanager
def translated(table: ErrorTable) -> Iterator[None]:
    """Raise a driver library's errors as ours, first match wins."""
    try:
        yield
    except tuple(table) as error:
        ours = next(ours for theirs, ours in table.items() if isinstance(error, theirs))
        raise ours(str(error)) from error


class Signal(Exception):
    """A handler's say in its own fate."""

    def __init__(self, decision: Decision, text: str) -> None:
        super().__init__(text)
        self.decision = decision


class RetryLater(Signal):
    """
    Try this delivery again after `delay` seconds, whatever the policy.

    It costs no attempt: the handler asked for it, nothing failed.
    """

    def __init__(self, delay: float, reason: str = "the handler asked for it") -> None:
        # 0.0 first: a delay that is not a number becomes none at all.
        bounded = min(max(0.0, delay), LONGEST_DELAY)
        super().__init__(Retry(bounded, charged=False), reason)


class GiveUp(Signal):
    """Make it a dead letter now; more attempts would be wasted."""

    def __init__(self, reason: str) -> None:
        super().__init__(Bury(Reason.REJECTED, reason), reason)


class Ignore(Signal):
    """Nothing to do here: acknowledge, and say so."""

    def __init__(self, reason: str = "ignored") -> None:
        super().__init__(Ack(reason), reason)


class LogicalFailure(Signal):
    """The work said no, as it may: note the error and go on."""

    def __init__(self, error: str) -> None:
        super().__init__(Continue(error), error)
