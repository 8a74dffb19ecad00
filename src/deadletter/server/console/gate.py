"""
The gate through which all text gets into a page.

Every value that a template prints is cleaned first and escaped second. So control
characters, direction marks and lone surrogates of messages are spelled out on every page,
without any template having to think of it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from deadletter.core.text import clean, clean_lines

from . import words

_TEMPLATES: Final = Path(__file__).parent / "templates"


def lines(text: str) -> Markup:
    """Return a text with several lines, clean and escaped; its newlines stay."""
    return escape(clean_lines(text))


def editable(text: str) -> Markup:
    """
    Return a text for a field with several lines, exactly as it is.

    Raises ValueError for characters that pages spell out: saving the field would change them.
    """
    plain = text.replace("\n", "").replace("\t", "")
    if clean(plain) != plain:
        raise ValueError("a field cannot show this text exactly")
    return escape(text)


def finalize(value: Any) -> Any:
    """
    Return the value as a template prints it.

    Only text, whole numbers and output of other templates can be printed. Everything else
    needs words first: times, shares, and None.
    """
    if isinstance(value, Markup):
        return value
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError(f"templates print text and whole numbers, not {type(value).__name__}")


def environment(names: Mapping[str, Any]) -> Environment:
    """Return the environment of all templates; `names` are known in each of them."""
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters["lines"] = lines
    made.filters["editable"] = editable
    made.globals.update(
        number=words.number,
        many=words.many,
        act_word=words.act_word,
        ago=words.ago,
        exact=words.exact,
        stamp=words.stamp,
        share=words.share,
        **names,
    )
    return made
