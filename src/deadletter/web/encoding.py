"""Values as JSON, whatever odd text of others is in them."""

from typing import Any, Final

import msgspec
from litestar import Response

_encoder: Final = msgspec.json.Encoder()


def encoded(value: Any) -> bytes:
    """
    The value as JSON.

    Lone surrogates, which come in from foreign brokers and are no text to anybody,
    become question marks.
    """
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_told(msgspec.to_builtins(value)))


class Json(Response[Any]):
    """A response that can tell any text."""

    def render(self, content: Any, media_type: str, enc_hook: Any = None) -> bytes:
        """The content as bytes."""
        if isinstance(content, bytes) or not media_type.startswith("application/json"):
            return super().render(content, media_type, enc_hook)
        return encoded(content)


def _told(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_told(key): _told(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_told(inner) for inner in value]
    return value
