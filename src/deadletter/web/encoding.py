"""Values as JSON, whatever odd text of others is in them."""

from typing import Any

from litestar import Response

from deadletter.core.documents import encode_document


class Json(Response[Any]):
    """A response that can tell any text."""

    def render(self, content: Any, media_type: str, enc_hook: Any = None) -> bytes:
        """The content as bytes."""
        if isinstance(content, bytes) or not media_type.startswith("application/json"):
            return super().render(content, media_type, enc_hook)
        return encode_document(content)
