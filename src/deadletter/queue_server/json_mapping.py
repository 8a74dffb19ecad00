"""
Protobuf's JSON mapping, as generated clients of any language use it.

Names may be in camelCase, null means that a field is missing, numbers may be texts, and
base64 may be the variant for URLs, with or without padding.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

Field: TypeAlias = Any  # a FieldDescriptor, whichever of protobuf's it is

_INTEGER: Final = re.compile(r"-?[0-9]{1,20}")
_FROM_URL: Final = str.maketrans("-_", "+/")


def to_plain_names(document: Any, kind: type[Message]) -> Any:
    """
    Return a JSON document as the strict reader expects it.

    What does not belong to the message stays in place, so that the strict reader rejects
    it. Raises ValueError if a field is given twice.
    """
    return _plain_message(document, kind.DESCRIPTOR)


def _plain_message(document: Any, descriptor: Any) -> Any:
    if not isinstance(document, Mapping):
        return document
    fields = _fields(descriptor)
    plain: dict[str, Any] = {}
    for name, value in document.items():
        field = fields.get(name)
        if field is not None and value is None:
            continue
        target = name if field is None else field.name
        if target in plain:
            raise ValueError(f"Object has the field `{target}` twice")
        plain[target] = value if field is None else _plain_field(value, field)
    return plain


@cache
def _fields(descriptor: Any) -> Mapping[str, Field]:
    by_json = {field.json_name: field for field in descriptor.fields}
    return by_json | {field.name: field for field in descriptor.fields}


def _plain_field(value: Any, field: Field) -> Any:
    convert = _conversion(field)
    if field.is_repeated and isinstance(value, list):
        return [convert(one) for one in value]
    return convert(value)


def _conversion(field: Field) -> Callable[[Any], Any]:
    if field.type == FieldDescriptor.TYPE_INT32:
        return _plain_number
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _plain_base64
    if field.message_type is not None:
        return lambda value: _plain_message(value, field.message_type)
    return lambda value: value


def _plain_number(value: Any) -> Any:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _plain_base64(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return value.translate(_FROM_URL).rstrip("=") + "=" * (-len(value.rstrip("=")) % 4)
