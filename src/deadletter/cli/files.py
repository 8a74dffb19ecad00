"""
Files that a command reads and writes.

What is written appears under its name when all of it is there, and not before.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from deadletter.core.errors import ConfigError, Conflict, Unavailable

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS})


@contextmanager
def new_file(out: str | Path, *, force: bool) -> Iterator[BinaryIO]:
    """
    Write a file that is there as a whole, or not at all.

    It has a temporary name beside its own until it is on the disk. Nobody else may
    read it. One that is there already is replaced only by `force`; a link is not
    followed, and a device or pipe is written to as it is.
    """
    path = Path(out)
    if _is_special(path, force=force):
        with path.open("wb") as file:
            yield file
        return
    temporary = path.with_name(f".{path.name[:100]}.{os.urandom(6).hex()}.part")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _name(temporary, path, force=force)
        _sync(path.parent)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise Unavailable(
            f"cannot write {out}: {error.strerror}; nothing was left under that name"
        ) from error
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


@contextmanager
def readable(file: BinaryIO) -> Iterator[BinaryIO]:
    """Give the same bytes as a file that can be read twice; a pipe is copied."""
    if file.seekable():
        yield file
        return
    with tempfile.TemporaryFile(prefix="dlq-") as copy:
        try:
            shutil.copyfileobj(file, copy, 1024 * 1024)
        except OSError as error:
            raise ConfigError(
                f"cannot keep what is read in {tempfile.gettempdir()}:"
                f" {error.strerror}; TMPDIR names another place"
            ) from error
        copy.seek(0)
        yield copy


def _is_special(path: Path, *, force: bool) -> bool:
    """Return whether something is there that is not a file; refuse what may not go."""
    if path.is_symlink() and force:
        raise ConfigError(f"cannot write {path}: it is a link; name what it leads to")
    if not path.exists() and not path.is_symlink():
        return False
    if not force:
        raise Conflict(f"{path} is there already: --force overwrites it")
    if path.is_dir():
        raise ConfigError(f"cannot write {path}: it is a directory")
    return not path.is_file()


def _name(temporary: Path, path: Path, *, force: bool) -> None:
    if not force:
        try:
            os.link(temporary, path)  # unlike a rename, it replaces nothing
        except FileExistsError as error:
            raise Conflict(f"{path} is there already: --force overwrites it") from error
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
        else:
            return
    temporary.replace(path)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
