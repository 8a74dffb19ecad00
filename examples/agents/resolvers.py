"""Resolvers, which turn the name of a reply mailbox into the mailbox."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from .errors import MailboxResolutionError
from .message import Mailbox

Factory: TypeAlias = Callable[[str], Mailbox[Any, Any] | None]


class MailboxResolver(Protocol):
    """Finds mailboxes by name."""

    def resolve(self, identifier: str) -> Mailbox[Any, Any]:
        """Return the mailbox. Raises MailboxResolutionError if there is none."""

    def resolve_optional(self, identifier: str) -> Mailbox[Any, Any] | None:
        """Return the mailbox, or None if there is none."""


class RegistryResolver:
    """A resolver with a fixed list of mailboxes."""

    def __init__(self, registry: Mapping[str, Mailbox[Any, Any]]) -> None:
        self._registry = registry

    def resolve(self, identifier: str) -> Mailbox[Any, Any]:
        found = self.resolve_optional(identifier)
        if found is None:
            raise MailboxResolutionError(identifier)
        return found

    def resolve_optional(self, identifier: str) -> Mailbox[Any, Any] | None:
        return self._registry.get(identifier)


class CompositeResolver(RegistryResolver):
    """A resolver with a list of mailboxes, and a factory for all other names."""

    def __init__(self, registry: Mapping[str, Mailbox[Any, Any]], factory: Factory) -> None:
        super().__init__(registry)
        self._factory = factory

    def resolve_optional(self, identifier: str) -> Mailbox[Any, Any] | None:
        return super().resolve_optional(identifier) or self._factory(identifier)
