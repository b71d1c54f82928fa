"""Faults. Outcomes that are expected are values (`extproc.domain.outcome`)."""

from __future__ import annotations


class ForebayError(Exception):
    """Base of every fault Forebay raises."""


class ConfigError(ForebayError):
    """The configuration cannot be used; the message names file, field, value and what is allowed."""


class BadRequest(ForebayError):
    """A managed request's body cannot be understood.

    Attributes:
        param: the field at fault in the body, or None for the whole.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class BodyTooLarge(BadRequest):
    """The body is larger than Forebay is configured to read."""


class QueueUnavailable(ForebayError):
    """The shared queue did not answer in time or cannot be reached."""


class ProtocolViolation(ForebayError):
    """The peer sent a message that has no place at this point of an exchange."""
