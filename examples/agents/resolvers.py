"""Reply mailboxes by name: how an address that travelled becomes a mailbox again."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from .errors import MailboxResolutionError
from .message import Mailbox

Factory: TypeAlias = Callable[[str], Mailbox[Any, Any] | None]


class MailboxResolver(Protocol):
    """Knows mailboxes by name."""

    def resolve(self, identifier: str) -> Mailbox[Any, Any]:
        """The mailbox; a MailboxResolutionError when there is none."""

    def resolve_optional(self, identifier: str) -> Mailbox[Any, Any] | None:
        """The mailbox, if there is one."""


class RegistryResolver:
    """Those that were listed, and no others."""

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
    """Those that were listed; for others a factory is asked, each time."""

    def __init__(self, registry: Mapping[str, Mailbox[Any, Any]], factory: Factory) -> None:
        super().__init__(registry)
        self._factory = factory

    def resolve_optional(self, identifier: str) -> Mailbox[Any, Any] | None:
        return super().resolve_optional(identifier) or self._factory(identifier)
