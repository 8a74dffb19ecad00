"""One observer made of several, none of which can hurt the runtime."""

import logging
from contextlib import suppress

from deadletter.core.events import Event, Observer


def fan_out(*observers: Observer) -> Observer:
    """
    Tell every observer of every event.

    One that raises is named in the log, once, and the others still hear of it.
    """
    complained: set[int] = set()

    def observe(event: Event) -> None:
        for number, observer in enumerate(observers):
            try:
                observer(event)
            except Exception as error:  # noqa: BLE001 -- observers may be anybody's code
                if number not in complained:
                    complained.add(number)
                    _complain(observer, error)

    return observe


def _complain(observer: Observer, error: Exception) -> None:
    name = getattr(observer, "__qualname__", type(observer).__qualname__)
    with suppress(Exception):  # a handler of the application's may raise as well
        logging.getLogger("deadletter").error(
            "observer %s fails; further errors of it are not shown",
            name,
            exc_info=error,
        )
