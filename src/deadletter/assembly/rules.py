"""Rules of classification that an operator wrote down in a file."""

from pathlib import Path

from deadletter.core.classify import Rule, rules_from_toml
from deadletter.core.errors import ConfigError


def read_rules(file: str | Path | None) -> tuple[Rule, ...]:
    """The rules in a TOML file, in its order; none where no file is named."""
    if file is None:
        return ()
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the rules in {file}: {error}") from error
    return rules_from_toml(text)
