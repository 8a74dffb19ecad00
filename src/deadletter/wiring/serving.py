"""The parts of a server: an open engine, and its stores of items and tokens."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.core.failure.classify import Rule, rules_from_toml
from deadletter.core.redact import redact
from deadletter.ports import (
    AccessStore,
    Clock,
    Dice,
    Engine,
    Guards,
    ItemStore,
    KeepsItems,
    LetterStore,
)
from deadletter.settings import Settings

from .engines import open_engine


class OpenEngine(Struct, frozen=True, kw_only=True):
    """An open engine, with its stores of items and tokens."""

    engine: Engine
    letters: LetterStore
    items: ItemStore | None  # None: this engine has no queue server
    access: AccessStore | None  # None: access is off


@asynccontextmanager
async def serving_engine(
    settings: Settings,
    *,
    url: str | None = None,
    office: str | None = None,
    clock: Clock,
    dice: Dice,
    make: bool = True,
) -> AsyncIterator[OpenEngine]:
    """
    Open the engine of the settings, or the one at `url`, and close it afterwards.

    With `make=False`, raises NotFound instead of creating a missing office. Tokens are
    stored in the engine or its office, or else in the file `access.store`.
    """
    async with AsyncExitStack() as stack:
        engine = await open_engine(
            url or settings.url,
            office=office or (None if url else settings.office),
            office_durability=settings.office_durability,
            clock=clock,
            dice=dice,
            make=make,
        )
        stack.push_async_callback(engine.close)
        assert engine.letters is not None  # every engine is opened with an office
        yield OpenEngine(
            engine=engine,
            letters=engine.letters,
            items=engine.items if isinstance(engine, KeepsItems) else None,
            access=await _access(stack, engine, settings, clock, dice),
        )


async def _access(
    stack: AsyncExitStack, engine: Engine, settings: Settings, clock: Clock, dice: Dice
) -> AccessStore | None:
    if settings.serve.access == "off":
        return None
    if isinstance(engine, Guards):
        return engine.access
    beside = await open_engine(
        settings.access.store, office_durability=settings.office_durability, clock=clock, dice=dice
    )
    stack.push_async_callback(beside.close)
    if isinstance(beside, Guards):
        return beside.access
    raise ConfigError(
        f"access.store is {redact(settings.access.store)!r}, which cannot store tokens: "
        "use a file, such as sqlite:///access.db"
    )


def read_rules(file: str | Path | None) -> tuple[Rule, ...]:
    """Return the rules of a TOML file, in order; none if no file is named."""
    if file is None:
        return ()
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the rules in {file}: {error}") from error
    return rules_from_toml(text)
