"""People of an OpenID provider: from their claims to name, role and mailboxes."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

from deadletter.core.access import Identity, Role, name_problem
from deadletter.settings import Oidc

ALL: Final = "*"
"""The value of the sources claim that stands for all mailboxes."""
_MOST: Final = 100  # mailboxes of one person


class SignInRefused(Exception):
    """A person who may not sign in; the text says why, in words for them."""


def identity_of(claims: Mapping[str, Any], settings: Oidc) -> Identity:
    """
    Return who somebody is to this office, by the claims of the provider.

    Raises SignInRefused if the claims give no name or no role, or no mailbox where the
    settings name a claim for them.
    """
    name = _name(claims, settings)
    return Identity(
        name=name,
        role=_role(claims, settings, name),
        sources=_sources(claims, settings, name),
        principal=principal_of(str(claims.get("iss", "")), str(claims.get("sub", ""))),
    )


def principal_of(issuer: str, subject: str) -> str:
    """Return the principal of a person: the same for each sign-in, and nobody else's."""
    text = f"{len(issuer)}:{issuer}{subject}".encode()
    return blake2b(text, digest_size=16, person=b"dlq-oidc").hexdigest()


def claim(claims: Mapping[str, Any], path: str) -> Any:
    """Return a claim by its name, or by names with dots where claims have claims."""
    if path in claims:  # names of some providers are URLs, with dots
        return claims[path]
    found: Any = claims
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def has_all(claims: Mapping[str, Any], settings: Oidc) -> bool:
    """Return whether the claims that the settings name are there."""
    wanted = [settings.name_claim, settings.role_claim]
    wanted += [settings.sources_claim] if settings.sources_claim else []
    return all(claim(claims, path) is not None for path in wanted)


def _name(claims: Mapping[str, Any], settings: Oidc) -> str:
    name = claim(claims, settings.name_claim)
    if not isinstance(name, str) or not name:
        raise SignInRefused(
            f"The provider did not say who you are: the claim {settings.name_claim!r} is"
            " missing. An administrator can choose another one in serve.oidc.name_claim."
        )
    if settings.name_claim == "email" and claims.get("email_verified") is False:
        raise SignInRefused(
            f"The provider has not verified the address {name}, so anybody could have chosen"
            " it. Verify it there and sign in again."
        )
    if problem := name_problem(name):
        raise SignInRefused(f"Your name cannot stand in the audit: {problem}.")
    return name


def _role(claims: Mapping[str, Any], settings: Oidc, name: str) -> Role:
    values = set(_texts(claim(claims, settings.role_claim)))
    for role, wanted in (
        (Role.ADMIN, settings.admins),
        (Role.OPERATOR, settings.operators),
        (Role.READER, settings.readers),
    ):
        if values & set(wanted):
            return role
    raise SignInRefused(
        f"You are {name} to the provider, and none of your {settings.role_claim} gives a role"
        " here. An administrator can add one in serve.oidc, or give you a token."
    )


def _sources(claims: Mapping[str, Any], settings: Oidc, name: str) -> tuple[str, ...]:
    if settings.sources_claim is None:
        return ()
    values = tuple(dict.fromkeys(_texts(claim(claims, settings.sources_claim))))
    if ALL in values:
        return ()
    if not values or len(values) > _MOST or not all(one.isprintable() for one in values):
        raise SignInRefused(
            f"You are {name} to the provider, and its claim {settings.sources_claim!r} names"
            " no mailbox that you may see."
        )
    return values


def _texts(value: Any) -> list[str]:
    """Return the texts of a claim: a list of them, one, or one with commas or spaces."""
    if isinstance(value, str):
        return value.replace(",", " ").split()
    if isinstance(value, list):
        return [one for one in value if isinstance(one, str) and one]
    return []
