import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from deadletter.core.errors import ConfigError
from deadletter.core.patch import (
    LARGEST_BODY,
    Inexpressible,
    NotJson,
    OtherShape,
    Patch,
    make_patch,
    parse_patch,
)

_NAMES = st.sampled_from(["a", "b", "c", "é", '"', "\\u0000", "\ud800"]) | st.text(max_size=3)
_LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
_VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4)
)
_OBJECTS = st.dictionaries(_NAMES, _VALUES, max_size=4)
_LAYOUTS = st.sampled_from(
    [{}, {"indent": 2}, {"separators": (",", ":")}, {"separators": (" , ", " : ")}, {"indent": 0}]
)


def encoded(value: Any, **layout: Any) -> bytes:
    return json.dumps(value, **layout).encode()


def merged(target: Any, patch: Any) -> Any:
    """The algorithm as RFC 7386 has it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


@given(_OBJECTS, _OBJECTS, _LAYOUTS)
def test_the_patch_of_an_edit_makes_the_same_edit(
    before: dict[str, Any], after: dict[str, Any], layout: dict[str, Any]
) -> None:
    body = encoded(before, **layout)
    try:
        patch = make_patch(body, encoded(after))
    except Inexpressible:
        assume(False)

    assert patch.is_for(body)
    assert json.loads(patch.applied_to(body)) == after
    again = parse_patch(patch.text, patch.was_text)
    assert again.applied_to(body) == patch.applied_to(body)
    assert again.is_for(body)


@given(_OBJECTS, _OBJECTS, _LAYOUTS)
def test_a_patch_does_what_the_rfc_says_or_nothing(
    body: dict[str, Any], members: dict[str, Any], layout: dict[str, Any]
) -> None:
    assume(members)
    patch = parse_patch(json.dumps(members))
    try:
        after = patch.applied_to(encoded(body, **layout))
    except OtherShape:
        return

    assert json.loads(after) == merged(body, members)
    assert patch.applied_to(after) == after


@given(st.binary(max_size=60))
def test_any_bytes_are_patched_or_refused(body: bytes) -> None:
    try:
        Patch(members={"a": "b"}).applied_to(body)
    except (NotJson, OtherShape):
        return


@pytest.mark.parametrize(
    ("body", "patch", "after"),
    [
        ('{"a":1,"b":2}', '{"a": 3}', '{"a":3,"b":2}'),
        ('{"n": 1.10, "big": 1e999, "a": 1}', '{"a": 2}', '{"n": 1.10, "big": 1e999, "a": 2}'),
        ('{"a":1}', '{"b": {"c": [1, 2]}}', '{"a":1,"b":{"c":[1,2]}}'),
        ('{\n  "a": 1\n}\n', '{"b": 2}', '{\n  "a": 1,\n  "b": 2\n}\n'),
        ('{\n\t"a": 1,\n\t"b": 2\n}', '{"a": null}', '{\n\t"b": 2\n}'),
        ('{"a": 1, "b": 2, "c": 3}', '{"b": null, "c": null}', '{"a": 1}'),
        ('{"a": 1, "b": 2}', '{"a": null, "b": null}', "{}"),
        ('{"a": 1, "b": 2}', '{"a": null, "b": null, "c": 3}', '{"c": 3}'),
        ("{}", '{"a": 1.50}', '{"a": 1.50}'),
        ('{"o":{"x":1,"y":[ 1 ]}}', '{"o": {"x": true}}', '{"o":{"x":true,"y":[ 1 ]}}'),
        ('{"o": null}', '{"o": {"x": 1, "y": null}}', '{"o": {"x": 1}}'),
        ('{"a": 1, "a": 2, "b": 3}', '{"a": null}', '{"b": 3}'),
        ('{"a": "\\u00e9"}', '{"b": "\\ud800é"}', '{"a": "\\u00e9", "b": "\\ud800é"}'),
    ],
)
def test_bytes_that_a_patch_does_not_name_stay_as_they_are(
    body: str, patch: str, after: str
) -> None:
    assert parse_patch(patch).applied_to(body.encode()).decode() == after


@pytest.mark.parametrize("body", ['{"a": 1}', '{ "a":1 , "o": {} }'])
def test_a_body_that_is_so_already_stays_the_same(body: str) -> None:
    assert parse_patch('{"a": 1, "gone": null}').applied_to(body.encode()) == body.encode()


@pytest.mark.parametrize(
    "body",
    [b"", b"no", b"{", b"\xff", b'{"a": NaN}', b'{"a": 1} x', b"[" * 100_000, b"1" * 5_000 + b"x"],
)
def test_what_is_not_json_is_not_patched(body: bytes) -> None:
    with pytest.raises(NotJson):
        parse_patch('{"a": 1}').applied_to(body)


def test_a_very_large_body_is_not_read() -> None:
    with pytest.raises(NotJson, match="4,194,304 bytes"):
        parse_patch('{"a": 1}').applied_to(b" " * (LARGEST_BODY + 1))


@pytest.mark.parametrize(
    ("body", "patch", "said"),
    [
        ("[1]", '{"a": 1}', "not a JSON object"),
        ('"text"', '{"a": 1}', "not a JSON object"),
        ('{"a": "c-1"}', '{"a": {"id": 1}}', "/a is not an object"),
        ('{"o": {"a": [1]}}', '{"o": {"a": {"id": 1}}}', "/o/a is not an object"),
        ('{"a": 1, "a": 2}', '{"a": 3}', "2 times"),
    ],
)
def test_values_are_not_overwritten_where_the_shape_is_another(
    body: str, patch: str, said: str
) -> None:
    with pytest.raises(OtherShape, match=said):
        parse_patch(patch).applied_to(body.encode())


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('{"a": [1]}', '{"a": [2]}', "in the list /a"),
        ('{"o": {"a": [1]}}', '{"o": {"a": [2]}}', "in the list /o/a"),
        ('{"a": 1}', '{"a": null}', "sets /a to null"),
        ('{"a": 1}', '{"a": {"b": 2}}', "an object of the value /a"),
        ("{}", '{"a": {"b": null}}', "sets /a to null"),
        ("[1]", "[2]", "not a JSON object"),
        ("no", '{"a": 1}', "not JSON"),
        ('{"a": 1}', '{ "a": 1 }', "changes no value"),
        ("{}", '{"a":' * 60 + "1" + "}" * 60, "too much"),
    ],
)
def test_edits_that_a_patch_cannot_say_are_refused(before: str, after: str, said: str) -> None:
    with pytest.raises(Inexpressible, match=said):
        make_patch(before.encode(), after.encode())


@pytest.mark.parametrize(
    ("was", "body", "fits"),
    [
        ('{"vat": "19"}', '{"vat": "19", "id": 1}', True),
        ('{"vat": "19"}', '{"vat": 19}', False),
        ('{"vat": null}', '{"id": 1}', True),
        ('{"vat": null}', '{"vat": null}', True),
        ('{"vat": null}', '{"vat": 0}', False),
        ('{"o": {"x": 1}}', '{"o": {"x": 1, "y": 2}}', True),
        ('{"o": {"x": 1}}', '{"o": 1}', False),
        ('{"o": {"x": null}}', "{}", True),
        ('{"o": {}}', '{"o": 1}', False),
    ],
)
def test_a_patch_is_only_for_bodies_with_the_values_that_were_there(
    was: str, body: str, fits: bool
) -> None:
    assert parse_patch('{"vat": 19}', was).is_for(body.encode()) is fits


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("{}", "empty"),
        ("[1]", "object"),
        ('{"a": }', "line 1, column 7"),
        ('{"a": Infinity}', "not JSON"),
        ('{"a":' * 60 + "1" + "}" * 60, "too deeply"),
        ('{"a": "' + "x" * 70_000 + '"}', "characters"),
    ],
)
def test_patches_that_are_invalid_are_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_patch(text)
