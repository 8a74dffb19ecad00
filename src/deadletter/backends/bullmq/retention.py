"""How long jobs that ended are kept, where their own options do not say."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from deadletter.core.errors import ConfigError

COMPLETED: Final = "remove_on_complete"
FAILED: Final = "remove_on_fail"


class Retention(Struct, frozen=True):
    """Both as BullMQ's worker options say it: JSON, `false` keeps all of them."""

    completed: bytes = b"false"
    failed: bytes = b"false"


def read_retention(url: str) -> tuple[str, Retention]:
    """Take what a URL says of it off the URL."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    retention = Retention(_read(given, COMPLETED), _read(given, FAILED))
    return urlunsplit(parts._replace(query=urlencode(given))), retention


def _read(given: dict[str, str], name: str) -> bytes:
    text = given.pop(name, "false")
    try:
        value = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        value = None
    if not _is_one(value):
        raise ConfigError(
            f"{name} in the URL must be true, false, a number of jobs, or"
            f' {{"age": seconds, "count": jobs}}, got {text!a}'
        )
    return msgspec.json.encode(value)


def _is_one(value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(value) and all(
            name in {"age", "count"} and _is_count(number)
            for name, number in value.items()
        )
    return isinstance(value, bool) or _is_count(value)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0
