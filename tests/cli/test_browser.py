"""The browser of `dlq serve --open`: one with windows, or none."""

import webbrowser

import pytest

from deadletter.cli.browser import find_browser, open_page

DESKTOP = {"DISPLAY": ":0"}


class Window:
    """A browser that only remembers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.opened: list[str] = []

    def open(self, url: str) -> bool:
        self.opened.append(url)
        return True


@pytest.mark.parametrize("name", ["firefox", "xdg-open", "/usr/bin/chromium", "x-www-browser"])
def test_browsers_with_windows_are_used(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    window = Window(name)
    monkeypatch.setattr(webbrowser, "get", lambda: window)

    assert find_browser(DESKTOP, "linux") is window
    assert find_browser({"WAYLAND_DISPLAY": "wayland-0"}, "linux") is window
    assert find_browser({}, "darwin") is window


@pytest.mark.parametrize("name", ["w3m", "lynx", "/usr/bin/www-browser", "elinks"])
def test_browsers_in_the_terminal_are_not(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(webbrowser, "get", lambda: Window(name))

    assert find_browser(DESKTOP, "linux") is None


def test_without_a_desktop_nothing_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    window = Window("firefox")
    monkeypatch.setattr(webbrowser, "get", lambda: window)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")

    assert find_browser({"SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22"}, "linux") is None
    assert not open_page("http://127.0.0.1:8418")
    assert window.opened == []


def test_a_desktop_without_any_browser_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Window:
        raise webbrowser.Error

    monkeypatch.setattr(webbrowser, "get", none)

    assert find_browser(DESKTOP, "linux") is None
