"""What could have been said instead of what is no choice."""

from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta, Struct, field

from deadletter.core.errors import with_choices


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


class Box(Struct):
    colour: Colour | None = None
    size: Literal["small", "large"] = "small"
    paint: Colour = field(default=Colour.RED, name="painted")
    inside: "list[Box]" = []
    named: "dict[str, tuple[Box, ...]]" = {}
    number: int = 0
    some: Annotated[list[Colour], Meta(max_length=2)] = []


@pytest.mark.parametrize(
    ("kind", "given", "choices"),
    [
        (Box, {"colour": "blue"}, "red, green"),
        (Box, {"painted": "blue"}, "red, green"),
        (Box, {"size": "blue"}, "large, small"),
        (Box, {"inside": [{}, {"inside": [{"colour": "blue"}]}]}, "red, green"),
        (Box, {"named": {"a": [{"size": "blue"}]}}, "large, small"),
        (Box, {"some": ["red", "blue"]}, "red, green"),
        (tuple[Box, ...], [{"colour": "blue"}], "red, green"),
        (Box | None, {"colour": "blue"}, "red, green"),
        (Colour, "blue", "red, green"),
        (msgspec.UnsetType | Colour, "blue", "red, green"),
    ],
)
def test_the_choices_are_named_wherever_it_stands(kind: Any, given: Any, choices: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(given, kind)

    said = with_choices(str(caught.value), kind)

    assert said == f"{caught.value}; it is one of {choices}"


def test_the_place_may_be_told_apart() -> None:
    said = "Invalid enum value 'blue'"

    assert with_choices(said, Box, "inside[0].colour").endswith("red, green")
    assert with_choices(said, Colour).endswith("red, green")


def test_other_validation_errors_are_left_unchanged() -> None:
    for said in (
        "Expected `int`, got `str` - at `$.number`",
        "Invalid enum value 'blue' - at `$.nowhere`",
        "Invalid enum value 'blue' - at `$.number`",
    ):
        assert with_choices(said, Box) == said
