import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.redact import MASK
from deadletter.office.view import MOST_LINES, header_lines, preview


def test_json_is_laid_out() -> None:
    lines = preview(b'{"id":1,"items":[{"sku":"A"},[]],"paid":true,"note":null}')

    assert lines == [
        "{",
        '  "id": 1,',
        '  "items": [',
        "    {",
        '      "sku": "A"',
        "    },",
        "    []",
        "  ],",
        '  "paid": true,',
        '  "note": null',
        "}",
    ]


@pytest.mark.parametrize("number", ["12345678901234567890123", "1.10", "1e400", "NaN", "9" * 5000])
def test_numbers_are_shown_as_they_were_written(number: str) -> None:
    shown = "".join(preview(f"[{number}]".encode()))

    assert number[:1000] in shown


def test_duplicate_keys_are_all_shown() -> None:
    assert preview(b'{"a":1,"a":2}') == ["{", '  "a": 1,', '  "a": 2', "}"]


def test_secrets_in_json_are_masked_unless_revealed() -> None:
    body = json.dumps({"password": {"old": "hunter2"}, "user": "anna"}).encode()

    masked = "\n".join(preview(body))
    revealed = "\n".join(preview(body, reveal=True))

    assert "hunter2" not in masked
    assert MASK in masked
    assert "anna" in masked
    assert "hunter2" in revealed


@pytest.mark.parametrize(
    "body",
    [
        b'{"password": "hunter2", "odd": "\xff"}',
        b"\x00\x01password=hunter2\xfe\x00",
        b'{"card": 4111111111111111}',
    ],
)
def test_secrets_in_bytes_and_numbers_are_masked_unless_revealed(body: bytes) -> None:
    shown, all_of_it = map(_read, (preview(body), preview(body, reveal=True)))

    assert MASK in shown or "*******" in shown  # as bytes, one for each
    assert not re.search("hunter2|4111", shown)
    assert re.search("hunter2|4111", all_of_it)


def _read(lines: list[str]) -> str:
    """Return the readable lines; of bytes, the part beside the digits."""
    return "".join(line[57:] or line for line in lines)


def test_secret_headers_are_masked_unless_revealed() -> None:
    headers = (("Authorization", b"Bearer abcdefghijkl"), ("tenant", b"eu"))

    assert header_lines(headers) == [f"Authorization: {MASK}", "tenant: eu"]
    assert "abcdefghijkl" in header_lines(headers, reveal=True)[0]


def test_text_is_shown_as_text() -> None:
    assert preview("Grüße\n\x1b[31mrot".encode()) == ["Grüße", "\\x1b[31mrot"]


def test_bytes_are_shown_as_bytes() -> None:
    lines = preview(bytes(range(256)) * 4)

    assert lines[0] == ("000000  00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f  ................")
    assert lines[4].endswith("@ABCDEFGHIJKLMNO")
    assert lines[-1] == "… 768 more bytes"


def test_nothing_is_said_to_be_empty() -> None:
    assert preview(b"") == ["(empty)"]


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 60_000,
        b"[" * 30_000 + b"]" * 30_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b"[" + b"1," * 30_000 + b"1]",
        b"[" + b'"\xff' * 100,
        b"x" * 5_000_000,
        ("ä" * 40_000).encode(),
        b"\n" * 60_000,
    ],
)
def test_bombs_are_bounded(body: bytes) -> None:
    lines = preview(body)

    assert len(lines) <= MOST_LINES + 1
    assert sum(map(len, lines)) < 500_000


@given(st.binary(max_size=2_000))
def test_any_body_can_be_shown(body: bytes) -> None:
    for line in preview(body):
        assert all(ord(c) >= 0x20 and not 0x7F <= ord(c) <= 0x9F for c in line)
