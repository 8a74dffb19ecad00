"""
What can go wrong around mailboxes, and what agents run into.

    MailboxError                     everything a mailbox raises
      ReceiptHandleExpiredError      the message is somebody else's by now
      SerializationError             a body that cannot be written or read
      MailboxConnectionError         the broker cannot be reached
      ReplyNotAvailableError         nobody asked for a reply
      MessageFinalizedError          it was acknowledged or handed back already
      InvalidParameterError          a number out of range, mailboxes that do not fit
      MailboxResolutionError         no mailbox of that name

    AgentError                       everything an agent raises
      RateLimitError, VisibilityExpansionRequired                        worth a retry
      ValidationError, ContentPolicyViolation, AuthenticationError,
      QuotaExceededError                                                 not worth one
      ProviderError, ResourceNotFoundError                               who knows
"""


class MailboxError(Exception):
    """Everything a mailbox raises."""


class ReceiptHandleExpiredError(MailboxError):
    """Its visibility timeout is over: it is, or will be, somebody else's."""


class SerializationError(MailboxError):
    """A body that cannot be written or read; usually for good."""


class MailboxConnectionError(MailboxError):
    """The broker cannot be reached at the moment."""


class ReplyNotAvailableError(MailboxError):
    """The message names no reply mailbox, or none that is known."""


class MessageFinalizedError(MailboxError):
    """It was acknowledged or handed back already."""


class InvalidParameterError(MailboxError, ValueError):
    """Something that cannot be; the text says what would be right."""


class MailboxResolutionError(MailboxError):
    """There is no mailbox of that name."""

    def __init__(self, identifier: str) -> None:
        super().__init__(f"no mailbox is known as {identifier!r}")
        self.identifier = identifier


class AgentError(Exception):
    """Everything an agent raises."""


class RateLimitError(AgentError):
    """The provider wants us to be slower."""


class VisibilityExpansionRequired(AgentError):
    """The prompt has to show more before it can be answered; normal."""


class ValidationError(AgentError):
    """A request that makes no sense as it is."""


class ContentPolicyViolation(AgentError):
    """A request nobody will answer."""


class AuthenticationError(AgentError):
    """The provider does not know us."""


class QuotaExceededError(AgentError):
    """The account is used up."""


class ProviderError(AgentError):
    """The provider said no, and not why."""


class ResourceNotFoundError(AgentError):
    """Something the answer needs is not there; yet, perhaps."""
