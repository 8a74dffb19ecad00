"""Files that a command writes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from deadletter.core.errors import ConfigError, Conflict


@contextmanager
def new_file(out: str | Path, *, force: bool) -> Iterator[BinaryIO]:
    """A file for what is in letters; one that is there is overwritten by `force`."""
    # Nobody else may read it, nothing is followed, and nothing is overwritten
    # unasked.
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    flags |= os.O_TRUNC if force else os.O_EXCL
    try:
        descriptor = os.open(out, flags, 0o600)
    except FileExistsError as error:
        raise Conflict(f"{out} is there already: --force overwrites it") from error
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror}") from error
    with os.fdopen(descriptor, "wb") as file:
        yield file
