"""Loading of the App that `module:attribute` on the command line names."""

import importlib
import sys
import traceback
from pathlib import Path
from types import FrameType, ModuleType

from deadletter.core.errors import ConfigError
from deadletter.core.failure.clues import plain_name, text_of

from .app import App


def load_app(spec: str) -> App:
    """
    Return the App that `module:attribute` names; the attribute is `app` unless given.

    Raises ConfigError with the file and line if the module cannot be imported.
    """
    module_name, _, attribute = spec.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _imported(module_name)
    found = getattr(module, attribute or "app", None)
    if not isinstance(found, App):
        raise ConfigError(
            f"{module_name} has no App named {attribute or 'app'!r}: create one with "
            f"{attribute or 'app'} = App(…)"
        )
    return found


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if _is_missing(name, error):
            text = (
                f"there is no module {name!r} in this directory: name the module and the "
                "App in it, such as shop:app"
            )
        else:
            text = f"could not import {name}: {_where(error, name)}{_what(error)}"
        raise ConfigError(text) from error


def _is_missing(name: str, error: BaseException) -> bool:
    """Return whether the module itself is missing, not one that it imports."""
    if not name or name.startswith("."):
        return True
    return (
        isinstance(error, ModuleNotFoundError)
        and error.name is not None
        and f"{name}.".startswith(f"{error.name}.")
    )


def _what(error: BaseException) -> str:
    if isinstance(error, ConfigError):
        return text_of(error)
    # str() of a SyntaxError would repeat the file and line.
    text = error.msg if isinstance(error, SyntaxError) else text_of(error)
    return f"{plain_name(type(error))}: {text}" if text else plain_name(type(error))


def _where(error: BaseException, name: str) -> str:
    """Return the innermost line of the user's own files."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}: "
    own = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _is_own(frame, name)
    ]
    return f"{own[-1][0]}, line {own[-1][1]}: " if own else ""


def _is_own(frame: FrameType, name: str) -> bool:
    module = str(frame.f_globals.get("__name__", ""))
    if module.partition(".")[0] == name.partition(".")[0]:
        return True
    file = Path(frame.f_code.co_filename)
    return file.is_relative_to(Path.cwd()) and "site-packages" not in file.parts
