"""Whether who let a replay run may still do so."""

from deadletter.core.access import Role
from deadletter.core.campaign import Campaign
from deadletter.office.replay_sender import Denied
from deadletter.ports import AccessStore, Clock


def replay_rights(access: AccessStore | None, clock: Clock) -> Denied:
    """
    Say why a replay may not be sent any more; None while it may.

    One that no token let run, but the command or a server without access, may be sent.
    """

    async def denied(campaign: Campaign) -> str | None:
        if access is None or not campaign.runs_as:
            return None
        for token in await access.tokens():
            if token.to.principal == campaign.runs_as:
                break
        else:
            return "the token that let it run was revoked"
        if token.is_over(clock.now()):
            return "the token that let it run has expired"
        if not token.to.may(Role.OPERATOR):
            return "the token that let it run may not replay"
        if campaign.to is not None and not token.to.sees(campaign.to):
            return "the token that let it run may not replay to that mailbox"
        return None

    return denied
