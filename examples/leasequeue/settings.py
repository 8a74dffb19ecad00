"""What the environment says."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, ValidationError, convert

from deadletter import ConfigError

FRAMES: Final = "frames"
DEAD: Final = "frames-dead"
_PREFIX: Final = "FARM_"


class Settings(Struct, frozen=True, kw_only=True):
    """How this farm runs; each field is a variable, `FARM_STORE` and so on."""

    store: str = "sqlite:///farm.db"  # where the queue server keeps its items
    port: int = 8418  # where it answers
    server: str = ""  # a queue server elsewhere, for workers and producers
    token: str = ""  # ...and the token it asks for
    pictures: str = "pictures"  # the folder that frames are rendered into
    lease: float = 30.0  # seconds a worker has for one frame
    expire: float = 86_400.0  # seconds that a frame may wait to be rendered
    attempts: int = 3  # workers that may try
    pause: float = 5.0  # seconds before the next one does
    pixels: int = 4_000_000  # the largest picture there is room for here
    grace: float = 10.0  # seconds for the frame in hand when told to stop

    @property
    def url(self) -> str:
        """Where the queue server is."""
        return self.server or f"http://127.0.0.1:{self.port}"

    @property
    def folder(self) -> Path:
        """Where pictures are."""
        return Path(self.pictures)


def read(environ: Mapping[str, str]) -> Settings:
    """The settings; what cannot be is refused with a sentence."""
    given: dict[str, Any] = {
        name: environ[_PREFIX + name.upper()]
        for name in Settings.__struct_fields__
        if environ.get(_PREFIX + name.upper())
    }
    try:
        return convert(given, Settings, strict=False)
    except ValidationError as error:
        raise ConfigError(f"{error}: see the variables FARM_...") from error
