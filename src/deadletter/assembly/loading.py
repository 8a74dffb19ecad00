"""`module:attribute` on the command line becomes an App."""

import importlib
import sys
from pathlib import Path

from deadletter.core.errors import ConfigError

from .app import App


def load_app(spec: str) -> App:
    """The App that `module:attribute` names; the attribute is `app` unless given."""
    module_name, _, attribute = spec.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(
            f"there is no module {module_name!r} here: give dlq work the module "
            "and the App in it, such as shop:app"
        ) from error
    found = getattr(module, attribute or "app", None)
    if not isinstance(found, App):
        raise ConfigError(
            f"{module_name} has no App called {attribute or 'app'!r}: make one with "
            f"{attribute or 'app'} = App(…)"
        )
    return found
