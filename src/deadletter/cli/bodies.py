"""Bodies and headers as people give them: in files, pipes and words."""

from pathlib import Path
from typing import Final

from deadletter.core.errors import ConfigError

from .interrupts import interruptible, standard_input

LARGEST: Final = 256 * 1024 * 1024


def read_body(file: Path) -> bytes:
    """The bytes of a file; - is standard input."""
    try:
        if str(file) == "-":
            with interruptible():
                data = standard_input().read(LARGEST + 1)
        else:
            with file.open("rb") as opened:
                data = opened.read(LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    if len(data) > LARGEST:
        raise ConfigError(f"{file} is larger than {LARGEST // 1024**2} MB")
    return data


def given_body(text: str | None, file: Path | None) -> bytes:
    """A body given as text or as a file, one of them."""
    if (text is None) == (file is None):
        raise ConfigError("give the body as text, or a file with --file, one of them")
    if text is not None:
        return text.encode("utf-8", "surrogateescape")
    assert file is not None
    return read_body(file)


def header_of(text: str) -> tuple[str, bytes]:
    """A header written as name=value."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ConfigError(f"a header is written name=value, not {text[:40]!r}")
    return name.strip(), value.encode("utf-8", "surrogateescape")
