"""
Message attributes of others: headers to us, and attributes again when sent back.

One more header, `sqs-attribute-types`, remembers what they were. Whoever sends with
it gives a message attributes that any SQS consumer can read.
"""

from re import compile as pattern
from typing import Any, Final

import msgspec

from deadletter.core.message import Headers, Message

TYPES: Final = "sqs-attribute-types"
_MOST: Final = 9  # SQS takes ten, and one is ours
_NAME: Final = pattern(r"(?!(?i:aws\.|amazon\.))[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_TYPE: Final = pattern(r"(String|Number|Binary)(\.[\x21-\x7e]{1,200})?")
_TEXT: Final = pattern("[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+")
_types: Final = msgspec.json.Decoder(dict[str, str]).decode


def headers_of(attributes: dict[str, Any]) -> Headers:
    """Attributes as headers."""
    if not attributes:
        return ()
    headers = [(name, _value(attributes[name])) for name in sorted(attributes)]
    kinds = {name: str(attributes[name]["DataType"]) for name in sorted(attributes)}
    return (*headers, (TYPES, msgspec.json.encode(kinds)))


def native_attributes(message: Message) -> dict[str, Any]:
    """Headers as attributes, those that were some; what SQS would refuse is not."""
    given = dict(message.headers)
    if TYPES not in given:
        return {}
    try:
        kinds = _types(given[TYPES])
    except msgspec.MsgspecError:
        return {}
    found: dict[str, Any] = {}
    for name, kind in kinds.items():
        attribute = _attribute(kind, given.get(name, b""))
        if attribute is not None and _NAME.fullmatch(name) and len(name) <= 256:
            found[name] = attribute
        if len(found) == _MOST:
            break
    return found


def _attribute(kind: str, value: bytes) -> dict[str, Any] | None:
    if not value or not _TYPE.fullmatch(kind):
        return None
    if kind.startswith("Binary"):
        return {"DataType": kind, "BinaryValue": value}
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return {"DataType": kind, "StringValue": text} if _TEXT.fullmatch(text) else None


def _value(attribute: dict[str, Any]) -> bytes:
    if "BinaryValue" in attribute:
        return bytes(attribute["BinaryValue"])
    return str(attribute.get("StringValue", "")).encode("utf-8", "surrogatepass")
