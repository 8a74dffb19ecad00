"""
JSON documents of values that may hold odd text.

JSON and UTF-8 have no lone surrogates; letters of foreign brokers may. One such
letter must not break a list for everybody: it is shown with them spelled out.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from .text import each_text, spelled

_encoder: Final = msgspec.json.Encoder()


def encode_document(value: Any, enc_hook: Callable[[Any], Any] | None = None) -> bytes:
    r"""
    Return the value as JSON.

    A lone surrogate becomes the six characters of its escape, as in `\udc80`, which
    also find it in a search. Everything else stays exactly what it is.
    """
    try:
        if enc_hook is None:
            return _encoder.encode(value)
        return msgspec.json.encode(value, enc_hook=enc_hook)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(value, enc_hook=enc_hook)
        return _encoder.encode(each_text(spelled, plain))
