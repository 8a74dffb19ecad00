"""Errors of client libraries, translated by a table."""

import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from deadletter.core.errors import ConfigError, DeadLetterError, Unavailable

from .tls import disagreement


class NoAnswer(Unavailable):
    """The connection broke or timed out: the call may have taken effect, or not."""


ErrorKey: TypeAlias = type[Exception] | int | str
"""A class of errors, or an error code of the server"""
ErrorRow: TypeAlias = tuple[type[DeadLetterError], str]
"""The error to raise, and its text: what is wrong and what to do"""


def error_text(error: BaseException) -> str:
    """Return the text of an error, or the name of its class if it has none."""
    return str(error) or type(error).__name__


def _no_codes(_: Exception) -> Sequence[int | str]:
    return ()


class ErrorTable:
    """
    Translation of a client library's errors into ours.

    Error codes are looked up first, from the most specific to the least, then classes in
    the order of the rows. The original text follows ours in parentheses.
    """

    def __init__(
        self,
        service: str,
        rows: Mapping[ErrorKey, ErrorRow],
        *,
        opening: Mapping[ErrorKey, ErrorRow] | None = None,
        configuration: Mapping[ErrorKey, str] | None = None,
        codes: Callable[[Exception], Sequence[int | str]] = _no_codes,
        text: Callable[[BaseException], str] = error_text,
        tls_options: tuple[str, str] = ("?cafile=", "?certfile= and ?keyfile="),
    ) -> None:
        """
        Build a table.

        `opening` has rows that count only while an engine is opened; their texts may
        mention `{where}`. `configuration` has texts of errors that are ConfigError while an
        engine is opened. Later they are Unavailable: what has changed may change back.
        `codes` returns the server's error codes of an error.
        `tls_options` name the URL's options for the server's authority and our certificate.
        """
        self.service = service
        for key, words in (configuration or {}).items():
            rows = {key: (Unavailable, words), **rows}
            opening = {**(opening or {}), key: (ConfigError, f"{{where}}: {words}")}
        self.known: tuple[type[Exception], ...] = tuple(
            key for key in rows if isinstance(key, type)
        )
        self._rows = rows
        self._opening = opening or {}
        self._codes = codes
        self._text = text
        self._tls_options = tls_options

    def extended(self, rows: Mapping[ErrorKey, ErrorRow]) -> "ErrorTable":
        """Return a table in which these rows come before the others."""
        rest = {key: row for key, row in self._rows.items() if key not in rows}
        return ErrorTable(
            self.service,
            {**rows, **rest},
            opening=self._opening,
            codes=self._codes,
            text=self._text,
            tls_options=self._tls_options,
        )

    @contextmanager
    def translated(self, doing: str = "") -> Iterator[None]:
        """Raise our errors instead of the client library's."""
        try:
            yield
        except self.known as error:
            raise self.translate(error, doing) from error

    def translate(self, error: Exception, doing: str = "") -> DeadLetterError:
        """Return our error for one of the client library; `doing` begins its text."""
        if isinstance(error, DeadLetterError):
            return error
        row = self._row(self._rows, error)
        if row is None:
            raise error
        kind, words = row
        begin = f"{doing}: " if doing else ""
        return kind(f"{begin}{words} ({self._text(error)})")

    def translate_answer(
        self, codes: Sequence[int | str], text: str, doing: str = ""
    ) -> DeadLetterError:
        """
        Return our error for an answer of the server that is not an exception.

        At least the last of its codes must have a row.
        """
        kind, words = next(self._rows[code] for code in codes if code in self._rows)
        begin = f"{doing}: " if doing else ""
        return kind(f"{begin}{words} ({text})")

    def translate_opening(self, error: Exception, where: str, hint: str = "") -> DeadLetterError:
        """
        Return our error for one that was raised while an engine was opened.

        `hint` is a question to add when the server does not answer.
        """
        text = self._text(error)
        if _is_tls_error(error):
            return disagreement(where, *self._tls_options, text)
        row = self._row(self._opening, error)
        if row is not None:
            kind, words = row
            return kind(f"{words.replace('{where}', where)} ({text})")
        ours = self.translate(error, where)
        if isinstance(ours, NoAnswer):
            hint = f" {hint}" if hint else ""
            return Unavailable(
                f"no answer from {where}: is {self.service} running, and is the URL right?"
                f"{hint} ({text})"
            )
        return ours

    def _row(self, rows: Mapping[ErrorKey, ErrorRow], error: Exception) -> ErrorRow | None:
        for code in self._codes(error):
            if code in rows:
                return rows[code]
        for key, row in rows.items():
            if isinstance(key, type) and isinstance(error, key):
                return row
        return None


def _is_tls_error(error: BaseException | None) -> bool:
    for _ in range(5):
        if error is None or isinstance(error, ssl.SSLError):
            break
        error = error.__cause__ or error.__context__
    return isinstance(error, ssl.SSLError)
