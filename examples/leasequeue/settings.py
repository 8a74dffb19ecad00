"""Settings of the farm, read from the environment."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, ValidationError, convert

from deadletter import ConfigError

FRAMES: Final = "frames"
DEAD: Final = "frames-dead"
_PREFIX: Final = "FARM_"


class Settings(Struct, frozen=True, kw_only=True):
    """Settings of one farm; each field is a variable: FARM_STORE and so on."""

    store: str = "sqlite:///farm.db"  # store of the queue server
    port: int = 8418  # port of the queue server
    server: str = ""  # URL of another queue server; none is started then
    token: str = ""  # token for that server
    pictures: str = "pictures"  # folder for rendered frames
    lease: float = 30.0  # seconds that a worker has for one frame
    expire: float = 86_400.0  # seconds that a frame may wait for a worker
    attempts: int = 3  # attempts until a frame is dead
    pause: float = 5.0  # seconds between two attempts
    pixels: int = 4_000_000  # pixels of the largest picture
    grace: float = 10.0  # seconds to finish the current frame when stopping

    @property
    def url(self) -> str:
        """Return the URL of the queue server."""
        return self.server or f"http://127.0.0.1:{self.port}"

    @property
    def folder(self) -> Path:
        """Return the folder for rendered frames."""
        return Path(self.pictures)


def read(environ: Mapping[str, str]) -> Settings:
    """Return the settings; raises ConfigError if a variable is invalid."""
    given: dict[str, Any] = {
        name: environ[_PREFIX + name.upper()]
        for name in Settings.__struct_fields__
        if environ.get(_PREFIX + name.upper())
    }
    try:
        return convert(given, Settings, strict=False)
    except ValidationError as error:
        raise ConfigError(f"invalid variable FARM_...: {error}; see the README") from error
