"""
Errors of mailboxes, and errors that agents raise.

    MailboxError                     base class of the errors of mailboxes
      ReceiptHandleExpiredError      the lease of the message has ended
      SerializationError             a body that cannot be encoded or decoded
      MailboxConnectionError         the broker is unavailable
      ReplyNotAvailableError         the message has no reply mailbox
      MessageFinalizedError          the message was acknowledged or returned before
      InvalidParameterError          an invalid argument
      MailboxResolutionError         no mailbox of that name

    AgentError                       base class of the errors of agents
      RateLimitError, VisibilityExpansionRequired                        retriable
      ValidationError, ContentPolicyViolation, AuthenticationError,
      QuotaExceededError                                                 not retriable
      ProviderError, ResourceNotFoundError                               ambiguous
"""


class MailboxError(Exception):
    """Base class of the errors of mailboxes."""


class ReceiptHandleExpiredError(MailboxError):
    """The lease of a message has ended: it is, or will be, delivered again."""


class SerializationError(MailboxError):
    """A body cannot be encoded or decoded; usually a permanent error."""


class MailboxConnectionError(MailboxError):
    """The broker is unavailable at the moment."""


class ReplyNotAvailableError(MailboxError):
    """The message has no reply mailbox, or an unknown one."""


class MessageFinalizedError(MailboxError):
    """The message was acknowledged or returned before."""


class InvalidParameterError(MailboxError, ValueError):
    """An invalid argument; the text says what is expected."""


class MailboxResolutionError(MailboxError):
    """No mailbox has this name."""

    def __init__(self, identifier: str) -> None:
        super().__init__(f"no mailbox is known as {identifier!r}: add it to the resolver")
        self.identifier = identifier


class AgentError(Exception):
    """Base class of the errors of agents."""


class RateLimitError(AgentError):
    """The provider limits the rate of requests."""


class VisibilityExpansionRequired(AgentError):
    """The prompt must be expanded before it can be answered; part of the normal flow."""


class ValidationError(AgentError):
    """The request is invalid."""


class ContentPolicyViolation(AgentError):
    """The request violates the content policy."""


class AuthenticationError(AgentError):
    """The provider rejects the credentials."""


class QuotaExceededError(AgentError):
    """The quota of the account is used up."""


class ProviderError(AgentError):
    """The provider failed, for an unknown reason."""


class ResourceNotFoundError(AgentError):
    """A resource that the answer needs does not exist, or not yet."""
