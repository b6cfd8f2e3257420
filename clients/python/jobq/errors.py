"""How a handler ends its job other than by a return value."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Optional, Union

Delay = Union[float, timedelta, str]


class Failure(Exception):
    """The job fails; the subclasses decide whether another attempt follows."""

    retryable: Optional[bool] = None

    def __init__(self, message: str, *, code: Union[str, int, None] = None, details: Any = None,
                 retry_after: Optional[Delay] = None):
        super().__init__(message)
        self.code = None if code is None else str(code)
        self.details = details
        self.retry_after = interval(retry_after)


class Retry(Failure):
    """The attempt fails, and another one follows, after `retry_after` or the type's backoff."""

    retryable = True


class Permanent(Failure):
    """The job fails for good and becomes a dead letter."""

    retryable = False


class Skip(Exception):
    """The job ends as `skipped`."""

    def __init__(self, reason: Optional[str] = None, result: Any = None):
        super().__init__(reason)
        self.reason = reason
        self.result = result


class Snooze(Exception):
    """The job waits for `delay`; the attempt is not charged."""

    def __init__(self, delay: Delay, reason: Optional[str] = None):
        super().__init__(reason)
        self.delay = interval(delay)
        self.reason = reason


class Stopped(Exception):
    """The client stops the handler: `reason` is `cancel`, `lost` or `shutdown`."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


class LeaseLost(Stopped):
    """The token of the job is no longer valid: another worker may have the job."""

    def __init__(self) -> None:
        super().__init__("lost")


def interval(delay: Optional[Delay]) -> Union[None, str, timedelta]:
    """Returns the argument for an interval of SQL: a number is seconds."""
    if delay is None or isinstance(delay, (str, timedelta)):
        return delay
    return timedelta(seconds=delay)
