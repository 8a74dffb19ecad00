"""Values out of headers that anybody may have written: read, or not there."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_ATTEMPTS: Final = 1_000_000
_NUMBERS: Final = {4, 8}  # bytes of the numbers that Java writes


def number(text: str) -> int | None:
    """A whole number, not negative, in decimal."""
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        return None
    return int(text)


def big_endian(value: bytes) -> int | None:
    """A number as Java writes it, not negative."""
    if len(value) not in _NUMBERS:
        return None
    read = int.from_bytes(value, "big", signed=True)
    return read if read >= 0 else None


def count(text: str) -> int:
    """How often something was tried; 0 when it is no count."""
    return min(number(text) or 0, _MOST_ATTEMPTS)


def millis(since: int | None) -> datetime | None:
    """A time in milliseconds since 1970."""
    if since is None:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=since)
    except OverflowError:
        return None


def moment(text: str) -> datetime | None:
    """A time as ISO 8601 has it, or as .NET writes it (… 09:45:35:123456 Z)."""
    text = text.strip()[:40]
    if text.endswith(" Z") and text.count(":") == 3:
        text = ".".join(text[:-2].rsplit(":", 1)) + "Z"
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def stamp(time: datetime | None) -> str:
    """Return a time as text for people, in UTC; empty without one."""
    return "" if time is None else time.isoformat().replace("+00:00", "Z")


def document(data: bytes) -> Any:
    """A JSON document; None when it is none."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def mapping(value: object) -> dict[str, Any]:
    """The value if it is a JSON object, otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def words(value: object) -> str:
    """The value if it is text, or a number's digits; otherwise empty."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if abs(value) < 10**18 else ""
    return ""


def named(found: tuple[tuple[str, bytes], ...], *prefixes: str) -> frozenset[str]:
    """The names among these headers that begin so."""
    return frozenset(name for name, _ in found if name.startswith(prefixes))


def last_line(stack: str) -> str:
    """The last line of a stack, where Python says what was raised."""
    return stack.rstrip().rpartition("\n")[2].strip()


def raised(line: str) -> tuple[str, str]:
    """The type and the text of `Type: text`, as Python and Java print them."""
    name, colon, text = line.partition(":")
    is_name = name.replace(".", "").replace("_", "").replace("$", "").isalnum()
    if not is_name or not (colon or line):
        return "", line
    return name, text.strip()


def shown(value: object) -> str:
    """A value of a JSON document, as short text for people."""
    return msgspec.json.encode(value).decode("utf-8", "replace")


def digits(value: int | None) -> str:
    """Return a number as text; empty without one."""
    return "" if value is None else str(value)
