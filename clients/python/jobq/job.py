"""The job as its handler sees it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import threading
import time
from datetime import datetime, timezone
from typing import Any, Callable, Dict, Iterator, List, Optional

from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from .errors import LeaseLost, Permanent, Stopped
from .values import jsonb, text

COMPLETE = "SELECT jobq.complete(%s::uuid, %s::uuid, %s::jsonb)"


class Job:
    """A claimed job: its row as attributes, and the calls of its handler.

    `progress`, `check`, `wait` and `stop_reason` work in threads and in coroutines;
    `checkpoint` blocks in a thread and is awaited in a coroutine.
    """

    def __init__(self, row: Dict[str, Any], heart: Any, loop: asyncio.AbstractEventLoop, threaded: bool):
        self._unreadable: Optional[Permanent] = None    # fails the job instead of its handler
        self.id = row["id"]
        self.type: str = row["job_type"]
        self.payload = self._parsed(row, "payload")
        self.attempts: int = row["attempts"]
        self.max_attempts: int = row["max_attempts"]
        self.tenant: Optional[str] = row["tenant"]
        self.metadata = self._parsed(row, "metadata")
        self.lease_token = row["lease_token"]
        self.deadline = None if row["deadline"] is None else _datetime(row["deadline"])
        self.progress_data = self._parsed(row, "progress_data")
        #: Once the job has ended: completed, failed, skipped, snoozed, cancelled, lost or released.
        self.outcome: Optional[str] = None
        self.error: Optional[BaseException] = None

        self._loop = loop
        self._threaded = threaded
        self._heart = heart
        now = time.monotonic()
        self._lease_until = now + row["lease_left"]
        self._deadline = math.inf if row["deadline_left"] is None else now + row["deadline_left"]
        self._stop = threading.Event()
        self._stop_reason: Optional[str] = None
        self._unsent: Optional[tuple] = None    # progress and data for the next heartbeat
        self._refused: Optional[Exception] = None
        self._events: List[tuple] = []          # arguments of log_event, in their order
        self._own_transaction = False   # complete() was called: heartbeats would wait for its row lock
        self._settling = False
        self._locked = False            # its last heartbeat met a lock of its row
        self._began: Optional[float] = None     # the start of its handler
        self._timer: Optional[asyncio.TimerHandle] = None   # of Heart.watch
        self._interrupt: Callable[[], None] = lambda: None

    @property
    def traceparent(self) -> Optional[str]:
        """The trace context of the enqueue, as W3C writes it, or None."""
        return self.metadata.get("traceparent") if isinstance(self.metadata, dict) else None

    @property
    def stop_reason(self) -> Optional[str]:
        """Why the handler must stop (`cancel`, `lost`, `shutdown`), or None."""
        return self._stop_reason

    def check(self) -> None:
        """Raises Stopped if the handler must stop; for loops in threads."""
        if self._stop_reason == "lost":
            raise LeaseLost()
        if self._stop_reason:
            raise Stopped(self._stop_reason)

    def wait(self, seconds: float) -> None:
        """Sleeps in a thread; raises Stopped as soon as the handler must stop."""
        self._stop.wait(seconds)
        self.check()

    def progress(self, percent: Optional[float], data: Any = None) -> None:
        """Reports progress (0 to 100) with the next heartbeat, which is sent soon; does not wait for it."""
        if percent is not None:
            if not hasattr(percent, "__float__"):
                raise TypeError(f"progress must be a number, not {type(percent).__name__}")
            percent = float(percent)    # one array has the numbers of all jobs
            if not 0 <= percent <= 100:
                raise ValueError(f"progress must be between 0 and 100, not {percent}")
        before = self._unsent or (None, None)
        self._unsent = (before[0] if percent is None else percent, before[1] if data is None else jsonb(data))
        self._loop.call_soon_threadsafe(self._heart.wake.set)

    def log(self, message: str, level: str = "info", type: Optional[str] = None, data: Any = None) -> None:
        """Writes an event of the job (jobq.log_event) in the background, before the job's end.

        `level` is debug, info, warning or error.  An event that the server refuses is in the worker's log.
        """
        self._events.append((text(message), level, type, jsonb(data)))
        self._loop.call_soon_threadsafe(self._heart.wake.set)

    def checkpoint(self, data: Any, percent: Optional[float] = None) -> Any:
        """Stores `data` for the next attempt (its `progress_data`); returns once the server has it.

        RuntimeError after `complete`: that attempt has no next one.
        """
        self._refuse_own_transaction()
        self.progress(percent, data)
        stored = asyncio.run_coroutine_threadsafe(self._heart.flush(self), self._loop)
        return stored.result() if self._threaded else asyncio.wrap_future(stored)

    def complete(self, connection: Any, result: Any = None) -> Any:
        """Completes the job in the transaction of `connection`, together with the handler's own writes.

        Raises LeaseLost if the token is no longer valid, so that the transaction rolls back.  On an
        AsyncConnection the call is awaited.  The handler returns after its commit.  If the call fails,
        or its transaction is rolled back, the job is settled by the handler's return value.
        """
        values = [self.id, self.lease_token, jsonb(result)]
        if isinstance(connection, AsyncConnection):
            return self._complete_later(connection, values)
        if self._events and self._threaded:
            asyncio.run_coroutine_threadsafe(self._heart.flush_events(self), self._loop).result()
        with self._completing():
            cursor = connection.cursor(row_factory=tuple_row).execute(COMPLETE, values)
            self._completed(cursor.fetchone())

    async def _complete_later(self, connection: AsyncConnection, values: List[Any]) -> None:
        await self._heart.flush_events(self)
        with self._completing():
            cursor = await connection.cursor(row_factory=tuple_row).execute(COMPLETE, values)
            self._completed(await cursor.fetchone())

    @contextlib.contextmanager
    def _completing(self) -> Iterator[None]:
        """Heartbeats rest from here on, unless the call fails."""
        self._own_transaction = True
        try:
            yield
        except BaseException:
            self._own_transaction = False
            self._loop.call_soon_threadsafe(self._heart.beat_all)
            raise

    def _completed(self, row: Any) -> None:
        if not row[0]:
            self._stop_reason = "lost"      # the call tells a coroutine: no interrupt
            self._stop.set()
            raise LeaseLost()

    # ---------- for the worker ----------

    def _parsed(self, row: Dict[str, Any], name: str) -> Any:
        """Parses JSON here and not in psycopg, where one bad job would cost its whole claim."""
        try:
            return None if row[name] is None else json.loads(row[name])
        except Exception as error:      # more digits than an int may have
            self._unreadable = Permanent(f"Python cannot read the {name}: {error}", code="unreadable")
            return None

    def _refuse_own_transaction(self) -> None:
        if self._own_transaction:
            raise RuntimeError("a transaction of the handler completes the job: it takes no checkpoint")

    def _duration_ms(self) -> int:
        """Returns the milliseconds since the start of the handler."""
        return 0 if self._began is None else round((time.monotonic() - self._began) * 1000)

    def _ends_at(self) -> float:
        """Returns the end of the lease or the deadline."""
        return min(self._lease_until, self._deadline)

    def _expired(self) -> bool:
        return time.monotonic() >= self._ends_at()

    def _end(self, reason: str) -> None:
        """Asks the handler to stop; `lost` replaces other reasons."""
        if self._stop_reason is None or (reason == "lost" and self._stop_reason != "lost"):
            self._stop_reason = reason
            self._stop.set()
            self._interrupt()

    def __repr__(self) -> str:
        return f"<jobq.Job {self.type} {self.id}>"


def _datetime(epoch: float) -> datetime:
    """Returns the time of an epoch, the last of Python's years for a later one.

    A timestamp as text depends on the session's DateStyle, and psycopg reads ISO dates up to 9999.
    """
    try:
        return datetime.fromtimestamp(epoch, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return datetime.max.replace(tzinfo=timezone.utc)
