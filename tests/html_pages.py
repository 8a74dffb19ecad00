"""HTML as tests read it: elements, text, forms, and whether the tags are balanced."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Final

_VOID: Final = {"area", "base", "br", "col", "embed", "hr", "img", "input"} | {
    *("link", "meta", "param", "source", "track", "wbr")
}


@dataclass(eq=False)
class Element:
    """One element, its attributes, and what is in it."""

    tag: str
    attrs: dict[str, str] = field(default_factory=dict)
    children: list["Element | str"] = field(default_factory=list)

    def __getitem__(self, name: str) -> str:
        return self.attrs[name]

    def get(self, name: str, default: str = "") -> str:
        """Return an attribute."""
        return self.attrs.get(name, default)

    @property
    def classes(self) -> list[str]:
        return self.get("class").split()

    @property
    def text(self) -> str:
        """The text in it as a person reads it: white space is one blank."""
        return " ".join("".join(self._texts()).split())

    @property
    def raw(self) -> str:
        """The text in it, with all white space."""
        return "".join(self._texts())

    def _texts(self) -> Iterator[str]:
        for child in self.children:
            if isinstance(child, str):
                yield child
            elif child.tag not in {"script", "template", "title"}:
                yield from child._texts()

    def walk(self) -> Iterator["Element"]:
        """All elements below this one, in the order of the page."""
        for child in self.children:
            if isinstance(child, Element):
                yield child
                yield from child.walk()

    def all(self, tag: str = "", **attrs: str) -> list["Element"]:
        """
        Return the elements with this tag and these attributes.

        `class_` matches one of the classes; underscores in other names are hyphens.
        """
        return [one for one in self.walk() if one.matches(tag, **attrs)]

    def find(self, tag: str = "", **attrs: str) -> "Element":
        """Return the only element like this; fail if there are none or several."""
        found = self.all(tag, **attrs)
        assert len(found) == 1, f"{len(found)} elements <{tag}> with {attrs} in: {self.text[:2000]}"
        return found[0]

    def matches(self, tag: str = "", **attrs: str) -> bool:
        """Return whether it is such an element."""
        if tag and self.tag != tag:
            return False
        for name, wanted in attrs.items():
            if name == "class_":
                if wanted not in self.classes:
                    return False
            elif self.attrs.get(name.rstrip("_").replace("_", "-")) != wanted:
                return False
        return True


@dataclass(eq=False)
class Form:
    """A form: where it goes, what it would send, its buttons."""

    element: Element

    @property
    def method(self) -> str:
        return self.element.get("method", "get").lower()

    @property
    def action(self) -> str:
        return self.element.get("action")

    @property
    def buttons(self) -> list[str]:
        """The names of what submits it."""
        return [
            one.text or one.get("value") or one.get("aria-label")
            for one in self.element.walk()
            if (one.tag == "button" and one.get("type", "submit") == "submit")
            or (one.tag == "input" and one.get("type") == "submit")
        ]

    @property
    def names(self) -> list[str]:
        """The names of all fields, also of those that are not chosen."""
        fields = {"input", "select", "textarea"}
        return [one["name"] for one in self.element.walk() if one.tag in fields and one.get("name")]

    @property
    def values(self) -> dict[str, list[str]]:
        """What a browser would send if nobody touched it, without the button."""
        sent: dict[str, list[str]] = {}
        for one in self.element.walk():
            for value in _value(one):
                sent.setdefault(one["name"], []).append(value)
        return sent


def _value(one: Element) -> list[str]:
    if not one.get("name") or "disabled" in one.attrs:
        return []
    if one.tag == "textarea":
        return [one.raw.removeprefix("\n")]
    if one.tag == "select":
        options = one.all("option")
        chosen = [option for option in options if "selected" in option.attrs] or options[:1]
        return [option.get("value", option.text) for option in chosen]
    if one.tag != "input" or one.get("type") in {"submit", "button", "image", "reset", "file"}:
        return []
    if one.get("type") in {"checkbox", "radio"}:
        return [one.get("value", "on")] if "checked" in one.attrs else []
    return [one.get("value")]


class Page(Element):
    """A page or a part of one."""

    def __init__(self, html: str) -> None:
        super().__init__("")
        self.html = html
        reader = _Reader(self)
        reader.feed(html)
        reader.close()
        self.wrong = reader.wrong + [f"<{one.tag}> is not closed" for one in reader.open[1:]]
        """What is wrong with its tags."""

    @property
    def title(self) -> str:
        return "".join(map(str, self.find("title").children)).strip()

    @property
    def h1(self) -> str:
        return self.find("h1").text

    @property
    def main(self) -> Element:
        """The content, without navigation and foot."""
        return self.find("main")

    @property
    def ids(self) -> list[str]:
        return [one["id"] for one in self.walk() if one.get("id")]

    @property
    def links(self) -> list[str]:
        return [one["href"] for one in self.all("a") if one.get("href")]

    @property
    def forms(self) -> list[Form]:
        return [Form(one) for one in self.all("form")]

    def link(self, text: str) -> str:
        """Return where the link with this text leads."""
        found = [one["href"] for one in self.all("a") if one.text == text]
        assert found, f"no link {text!r}; there are {[one.text for one in self.all('a')]}"
        return found[0]

    def form(self, *, action: str = "", button: str = "") -> Form:
        """Return the form that goes there, or that has a button which begins like this."""
        found = [
            form
            for form in self.forms
            if (not action or form.action == action)
            and (not button or any(one.startswith(button) for one in form.buttons))
        ]
        known = [(form.action, form.buttons) for form in self.forms]
        assert found, f"no form with action {action!r} and button {button!r}; there are {known}"
        return found[0]

    def table(self, caption: str = "") -> list[list[str]]:
        """Return the texts of a table, row by row, without its head."""
        tables = self.all("table")
        if caption:
            tables = [
                one for one in tables if any(two.text == caption for two in one.all("caption"))
            ]
        assert tables, f"no table {caption!r}"
        rows = [row for body in tables[0].all("tbody") for row in body.all("tr")]
        return [[cell.text for cell in row.walk() if cell.tag in {"td", "th"}] for row in rows]


class _Reader(HTMLParser):
    """Builds the elements of a page, and notes tags that do not fit."""

    def __init__(self, page: Element) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [page]
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(names) != len({*names}):
            self.wrong.append(f"<{tag}> has an attribute twice: {names}")
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open[-1].tag == tag:
            self.open.pop()
        else:
            line, column = self.getpos()
            self.wrong.append(f"</{tag}> at {line}:{column} closes <{self.open[-1].tag}>")

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)
