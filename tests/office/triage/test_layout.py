"""Bodies in slices of lines: bounded, masked, verbatim."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.errors import ConfigError
from deadletter.core.redact import MASK
from deadletter.office.triage.json_layout import FOLDED_MEMBERS, WIDTH, BodyLine, LineKind
from deadletter.office.triage.layout import MOST_BYTES, MOST_LINES, SLICE, BodySlice, Form, layout

ODD = "\x00\x1b\u202e\u2028\ud800\ufeff"


def slices(body: bytes, form: Form = Form.PRETTY, *, reveal: bool = False) -> list[BodySlice]:
    """Return all slices of a body."""
    found = [layout(body, form=form, reveal=reveal)]
    while (after := found[-1].after) is not None:
        assert after > found[-1].start
        found.append(layout(body, after, form=form, reveal=reveal))
        assert len(found) < 200
    return found


def lines_of(found: list[BodySlice]) -> list[BodyLine]:
    return [line for one in found for line in one.lines]


def text_of(found: list[BodySlice]) -> str:
    return "\n".join(str(line) for line in lines_of(found))


def is_safe(line: BodyLine) -> bool:
    shown = f"{line.name}{line.text}"
    return shown.isprintable() or all(ord(one) >= 0x20 and one not in ODD for one in shown)


def test_json_has_kinds_depths_and_folds() -> None:
    many = list(range(FOLDED_MEMBERS + 1))
    body = json.dumps({"a": {"b": {"c": {"d": 1}}}, "many": many, "few": [None]}).encode()

    (found,) = slices(body)

    by_name = {line.name: line for line in found.lines if line.name}
    assert by_name['"c"'] == BodyLine(
        kind=LineKind.OBJECT, text="{", name='"c"', depth=3, members=1, fold=True
    )
    assert (by_name['"b"'].fold, by_name['"b"'].members) == (False, 1)
    assert (by_name['"many"'].members, by_name['"many"'].fold) == (21, True)
    assert (by_name['"few"'].members, by_name['"few"'].fold) == (1, False)
    assert by_name['"d"'] == BodyLine(kind=LineKind.NUMBER, text="1", name='"d"', depth=4)
    assert found.lines[-1] == BodyLine(kind=LineKind.END, text="}")
    assert json.loads(text_of([found])) == json.loads(body)


def test_slices_join_to_the_document() -> None:
    document = {"rows": [{"id": n, "name": f"r\n{n}", "ok": True} for n in range(11_000)]}
    body = json.dumps(document, indent=3).encode()

    found = slices(body)

    assert len(body) < MOST_BYTES
    assert len(found) > 10
    assert all(len(one.lines) <= MOST_LINES for one in found)
    assert json.loads(text_of(found)) == document


def test_a_slice_can_begin_where_nobody_ended() -> None:
    body = json.dumps([{"password": {"deep": ["hunter2", n]}, "n": n} for n in range(9_000)])
    whole = body.encode()
    for start in (1, 70_001, 70_013, len(whole) - 3):
        found = layout(whole, start)
        assert "hunter2" not in text_of([found])
        assert found.start >= start


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("size", [10, 70_000, 200_000])
def test_secrets_stay_masked_wherever_a_slice_begins(form: Form, size: int) -> None:
    secret = {"deep": ["hunter2" * 10, {"x": "hunter2"}]}
    document = {"pad": "x" * size, "token_values": secret, "api_token": "hunter2", "n": 1}
    document |= {f"k{n}": {"pass\u0077ord": "hunter2"} for n in range(2_000)}
    body = json.dumps(document).replace("password", "pass\\u0077ord").encode()

    masked = lines_of(slices(body, form))
    revealed = lines_of(slices(body, form, reveal=True))

    def read(lines: list[BodyLine]) -> str:
        cut = 57 if form is Form.HEX else 0
        return "".join(line.text[cut:] for line in lines)

    assert "hunter2" in read(revealed)
    assert "hunter" not in read(masked)
    for start in range(0, min(len(body), 200_000), 9_973):
        assert "hunter2" not in read(list(layout(body, start, form=form).lines))


def test_a_secret_of_a_text_is_masked_across_slices() -> None:
    secret = "a1B2" * 500
    body = ("x" * (SLICE - 30) + f"\nAuthorization: Bearer {secret}\nend " * 3).encode()

    shown = text_of(slices(body))
    in_the_middle = text_of([layout(body, SLICE + 100)])

    assert "B2a1" not in shown + in_the_middle
    assert MASK in shown
    assert MASK in in_the_middle
    assert shown.endswith("end ")


def test_raw_text_is_whole_and_hex_has_true_offsets() -> None:
    text = "\n".join(f"line {n} " + "y" * (n % 5_000) for n in range(200))
    body = text.encode()

    raw = lines_of(slices(body, Form.RAW))
    hexed = lines_of(slices(b"password=hunter2 " + body, Form.HEX))

    joined = "".join(
        line.text if line.kind is LineKind.CONTINUED else f"\n{line.text}" for line in raw
    )
    # A slice may end within a line.
    assert joined.replace("\n", "") == text.replace("\n", "")
    assert hexed[0].text.startswith("000000  70 61 73 73 77 6f 72 64 3d ** ** ** ** ** ** **")
    assert hexed[1].text.startswith("000010  20 6c")


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 60_000,
        b"[" * 3_000_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b'{"token":' + b"[" * 500_000,
        b'{"token":' + b'{"token":' * 100_000,
        b"[" + b"1," * 600_000 + b"1]",
        b"[" + b"9" * 2_000_000 + b"]",
        b'["' + b"\\u0041" * 300_000 + b'"]',
        b'["' + b"\xff" * 5_000_000,
        b"[" + b'"\xff",' * 100_000 + b"1]",
        b"x" * 10_000_000,
        b"\n" * 1_000_000,
        b"\x00" * 1_000_000,
        b'{"password":"' + b"x" * 10_000_000,
        b"password=" * 200_000,
        b'"a":' * 200_000,
        b'{"":' * 99 + b"1" + b"}" * 98,
    ],
)
@pytest.mark.parametrize("form", Form)
def test_bombs_are_bounded(body: bytes, form: Form) -> None:
    began = time.process_time()
    found = layout(body, form=form)
    took = time.process_time() - began

    assert len(found.lines) <= MOST_LINES + SLICE // WIDTH + 1
    assert sum(len(line.name) + len(line.text) for line in found.lines) < 12 * SLICE
    assert all(map(is_safe, found.lines))
    assert took < 2.0  # far more than it takes, on a busy machine


def test_contents_beyond_a_megabyte_have_to_be_downloaded() -> None:
    for body in (b"x" * 3_000_000, b"[" + b'"abcdefgh",' * 200_000 + b"1]"):
        found = slices(body)
        assert found[-1].after is None
        assert "3,000,000 bytes" in text_of(found[-1:]) or "2,200,003 bytes" in text_of(found[-1:])
        assert found[-1].lines[-1].kind is LineKind.NOTE


def test_json_that_breaks_later_says_where() -> None:
    body = (
        json.dumps([{"password": "hunter2"}] * 5_000).encode()[:-1]
        + b', {"password": ["hunter2" oops'
    )

    found = slices(body)

    assert found[0].form is Form.PRETTY
    assert "hunter2" not in text_of(found)
    assert found[-1].lines[-1].text.startswith("… not JSON from byte")


@pytest.mark.parametrize("start", [-1, 4])
def test_a_start_outside_the_body_is_refused(start: int) -> None:
    with pytest.raises(ConfigError, match="0 to 3"):
        layout(b"abc", start)


def test_nothing_is_said_to_be_empty() -> None:
    assert [str(line) for line in layout(b"").lines] == ["(empty)"]


_TEXTS = st.text(max_size=20) | st.sampled_from([ODD, "hunter2", "</script>", "[redacted]"])
_NAMES = _TEXTS | st.sampled_from(["password", "token", "a"])
_DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_NAMES, inner, max_size=5),
    max_leaves=30,
)


@given(st.dictionaries(_NAMES, _DOCUMENTS) | st.lists(_DOCUMENTS), st.sampled_from([None, 1]))
def test_any_document_is_shown_as_it_is(document: Any, indent: int | None) -> None:
    body = json.dumps(document, indent=indent).encode()

    (found,) = slices(body, reveal=True)

    assert found.form is Form.PRETTY
    assert all(map(is_safe, found.lines))
    shown = text_of([found])
    if not any(one in shown for one in ("\\x", "\\U", "\\\\")):
        assert json.loads(shown) == document


@given(_DOCUMENTS, st.sampled_from(list(Form)), st.booleans())
def test_values_of_secret_names_are_never_shown(document: Any, form: Form, deep: bool) -> None:
    secret = {"x": ["hunter3", document]} if deep else "hunter3"
    body = json.dumps({"a": [document], "password": secret, "b": document}).encode()

    shown = "".join(
        line.text[57 if form is Form.HEX else 0 :] for line in layout(body, form=form).lines
    )

    assert "hunter3" not in shown


@given(st.binary(max_size=3_000), st.sampled_from(list(Form)), st.integers(0, 3_000))
def test_any_body_can_be_shown_from_anywhere(body: bytes, form: Form, start: int) -> None:
    found = layout(body, min(start, len(body)), form=form)

    assert all(map(is_safe, found.lines))
    assert found.after is None or found.after > found.start
