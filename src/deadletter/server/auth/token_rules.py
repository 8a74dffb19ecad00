"""Rules of who may create which tokens, for the API and the console."""

from litestar.exceptions import PermissionDeniedException

from deadletter.core.access import Identity

from .keys import covers


def check_may_issue(who: Identity, to: Identity) -> None:
    """
    Raise 403 if the caller must not create a token for this identity.

    A token cannot see more mailboxes than its creator. A creator who is limited to some
    mailboxes uses its own name as a prefix: `mail-team` creates `mail-team/ci`.
    """
    if who.sources and not f"{to.name}/".startswith(f"{who.name}/"):
        raise PermissionDeniedException(
            f"the name must begin with your own name, such as {who.name}/{to.name}"
        )
    if not covers(who, to):
        raise PermissionDeniedException(
            f"you see only {', '.join(who.sources)}: choose sources among these"
        )
