"""What Knative writes on a CloudEvent that it could not deliver."""

from base64 import b64decode
from binascii import Error
from typing import Any, Final

from .found import Found, Told
from .values import document, mapping, number, words

_CODE: Final = "knativeerrorcode"
_DATA: Final = "knativeerrordata"
_TO: Final = "knativeerrordest"
_NAMES: Final = (_CODE, _DATA, _TO)
# Before an attribute's name in a header: on Kafka, HTTP and NATS, AMQP, and nothing.
_PREFIXES: Final = ("ce_", "ce-", "cloudEvents:", "cloudEvents_", "")


def knative(found: Found) -> Told | None:
    """
    Knative's `knativeerror*`: what was answered, and by whom.

    Of an event in structured mode they stand in its body, which stays as it is.
    """
    said = _attributes(found)
    if not said:
        return None
    code = number(said.get(_CODE, ""))
    return Told(
        dialect="knative",
        error_type=f"HTTP {code}" if code else "",
        error_text=_answer(said.get(_DATA, "")),
        status=code or 0,
        consumer=said.get(_TO, ""),
        fields={"destination": said.get(_TO, ""), "status": said.get(_CODE, "")},
        drops=frozenset(prefix + name for prefix in _PREFIXES for name in _NAMES),
    )


def _attributes(found: Found) -> dict[str, str]:
    for prefix in _PREFIXES:
        said = {name: found.text(prefix + name) for name in _NAMES}
        if any(said.values()):
            return said
    if b"knativeerror" not in found.body:
        return {}
    event: dict[str, Any] = mapping(document(found.body))
    return {name: words(event[name]) for name in _NAMES if name in event}


def _answer(data: str) -> str:
    """The answer's beginning: base64, as a rule."""
    try:
        return b64decode(data, validate=True).decode()
    except (Error, ValueError):
        return data
