"""
What the exit code of `dlq` says. Scripts may rely on these.

    0    done
    1    something unexpected went wrong: a defect of ours, please report it
    2    the command line or the search cannot be understood, or --yes is missing
    3    no such letter, mailbox or replay
    4    it changed meanwhile, or its state does not allow this, or you said no
    5    the broker or database cannot be reached or used
    6    a check failed; or letters of a replay failed again, or have no outcome in time
    7    the file of the store was removed or replaced while it was in use
    130  interrupted
"""

from enum import IntEnum

from deadletter.core.errors import (
    BackendError,
    ConfigError,
    Conflict,
    Malformed,
    NotFound,
    QueryError,
    StoreLost,
)


class ExitCode(IntEnum):
    """What the exit code of `dlq` says."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNAVAILABLE = 5
    CHECK_FAILED = 6
    STORE_LOST = 7
    INTERRUPTED = 130


def code_for(error: BaseException) -> ExitCode:
    """The exit code an error ends the command with."""
    match error:
        case QueryError() | ConfigError() | Malformed():
            return ExitCode.USAGE
        case NotFound():
            return ExitCode.NOT_FOUND
        case Conflict():
            return ExitCode.CONFLICT
        case StoreLost():
            return ExitCode.STORE_LOST
        case BackendError():
            return ExitCode.UNAVAILABLE
        case KeyboardInterrupt():
            return ExitCode.INTERRUPTED
        case _:
            return ExitCode.UNEXPECTED
