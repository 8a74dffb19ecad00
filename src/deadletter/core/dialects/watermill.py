"""Watermill's poison queue middleware."""

from typing import Final

from .found import Found, Told

_NAMES: Final = frozenset(
    {"reason_poisoned", "topic_poisoned", "handler_poisoned", "subscriber_poisoned"}
)


def poisoned(found: Found) -> Told | None:
    """Four metadata keys: why, which topic, which handler, which subscriber."""
    if not any(name in _NAMES for name, _ in found.headers):
        return None
    return Told(
        dialect="watermill",
        source=found.text("topic_poisoned"),
        message_id=found.text("_watermill_message_uuid"),
        error_text=found.text("reason_poisoned"),
        consumer=found.text("handler_poisoned"),
        fields={
            name.removesuffix("_poisoned"): found.text(name) for name in sorted(_NAMES)
        },
        retold=_NAMES,
        drops=_NAMES,
    )
