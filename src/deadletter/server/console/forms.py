"""Forms: what browsers send with a POST, as values."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
from litestar import Request
from litestar.exceptions import HTTPException
from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.server.auth.authenticator import CSRF_FIELD, FORM

T = TypeVar("T", bound=Struct)

LARGEST: Final = 1024 * 1024
"""Bytes of a form; give it to the route as `request_max_body_size`."""


async def read_form(request: Request[Any, Any, Any], type_: type[T]) -> T:
    """
    Return the fields of a form as a value of this type.

    Fields of tuples may be sent several times. An empty field counts as missing where it
    has a default. Raises ConfigError, which is a 400, for unknown and invalid fields.
    """
    if request.content_type[0] != FORM:
        raise HTTPException(f"the content type must be {FORM}", status_code=415)
    form = await request.form()
    sent: dict[str, list[str]] = {}
    for name, value in form.multi_items():
        sent.setdefault(name, []).append(str(value))
    sent.pop(CSRF_FIELD, None)
    return convert_form(sent, type_)


def convert_form(sent: Mapping[str, list[str]], type_: type[T]) -> T:
    """Return the fields of a form, each with all its values, as a value of this type."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(type_)}
    found: dict[str, Any] = {}
    for name, values in sent.items():
        field = fields.get(name)
        if field is None:
            raise ConfigError(f"the form has an unknown field {name[:40]!r}")
        if isinstance(msgspec.inspect.type_info(field.type), msgspec.inspect.VarTupleType):
            found[name] = values
        elif len(values) > 1:
            raise ConfigError(
                f"the form has the field {name!r} {len(values)} times; once is expected"
            )
        elif values[0] or field.required:
            found[name] = values[0]
    try:
        return msgspec.convert(found, type_, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the form is invalid: {error}") from None
