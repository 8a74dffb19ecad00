"""Who we are to a server: a token, which is never a word of the command line."""

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from deadletter.core.errors import ConfigError
from deadletter.core.plain import is_word

NAME: Final = "DLQ_TOKEN"
_MOST: Final = 4096  # characters


def given_token(environ: Mapping[str, str]) -> str | None:
    """
    The token in DLQ_TOKEN, or in the file that DLQ_TOKEN_FILE names.

    A file that others may read is refused, as ssh does.
    """
    if token := environ.get(NAME, "").strip():
        return _checked(token, NAME)
    name = environ.get(f"{NAME}_FILE")
    return _read(Path(name)) if name else None


def _read(file: Path) -> str:
    try:
        mode = file.stat().st_mode
        with file.open(encoding="utf-8") as opened:
            token = opened.read(_MOST).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the token in {file}: {error}") from error
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(f"others may read {file}, which holds a token: chmod 600 it")
    if not token:
        raise ConfigError(f"there is no token in {file}")
    return _checked(token, str(file))


def _checked(token: str, where: str) -> str:
    if not is_word(token):
        raise ConfigError(
            f"what is in {where} is not a token: it is one word of ASCII, without"
            " spaces or line breaks"
        )
    return token
