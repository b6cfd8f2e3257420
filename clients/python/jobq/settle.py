"""Settlements: the calls that end attempts, repeated until the lease is over."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any, Dict, List, Optional

import psycopg

from .connection import LOCKED, Gone, Link, bounded, lock_ms
from .errors import Delay, Failure, Skip, Snooze, interval
from .job import Job
from .values import jsonb, text

TIMEOUT = 20.0      # at most so many seconds for one statement, which may wait for a row lock
MOST = 500          # completions in one statement
REPEAT = 0.25       # seconds until a settlement that met a lock is sent again

COMPLETE = bounded("SELECT jobq.complete(%s::uuid, %s::uuid, %s::jsonb) AS answer")
COMPLETE_MANY = bounded("SELECT jobq.complete_many(%s::uuid[], %s::uuid[], %s::jsonb[]) AS answer")
FAIL = bounded("""SELECT jobq.fail(%s::uuid, %s::uuid, %s::text, retryable => %s::boolean, error_code => %s::text,
                           retry_after => %s::interval, details => %s::jsonb) AS answer""")
SKIP = bounded("SELECT jobq.skip_job(%s::uuid, %s::uuid, %s::text, %s::jsonb) AS answer")
SNOOZE = bounded("SELECT jobq.snooze_job(%s::uuid, %s::uuid, %s::interval, %s::text) AS answer")


class Settlement:
    """One call that waits for its answer; None as the answer means lost."""

    def __init__(self, job: Job, sql: str, values: List[Any]):
        self.job = job
        self.sql = sql
        self.values = [job.id, job.lease_token, *values]
        self.alone = sql != COMPLETE
        self.again = False
        self.answer: "asyncio.Future[Any]" = asyncio.get_running_loop().create_future()

    def finish(self, answer: Any = None, error: Optional[Exception] = None) -> None:
        if self.answer.done():
            return
        if error is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(answer)


class Settler:
    """Sends settlements in one order; completions that wait together share a statement."""

    def __init__(self, link: Link, lease: float):
        self.link = link
        self.timeout = min(TIMEOUT, max(1.0, lease / 4))
        self.lease = lease
        self.waiting: "asyncio.Queue[Settlement]" = asyncio.Queue()

    async def complete(self, job: Job, result: Any) -> bool:
        return bool(await self._call(job, COMPLETE, [jsonb(result)]))

    async def fail(self, job: Job, error: BaseException) -> Optional[str]:
        """Returns `retry`, `error`, or None for a lost lease."""
        values = failure_values(error)
        try:
            answer = await self._call(job, FAIL, values)
        except psycopg.Error as refused:
            values = [text(f"{values[0]} ({reason_of(refused)})"), values[1], None, None, None]
            answer = await self._call(job, FAIL, values)
        return None if answer == "lost" else answer

    async def skip(self, job: Job, skip: Skip) -> bool:
        return bool(await self._call(job, SKIP, [skip.reason and text(skip.reason), jsonb(skip.result)]))

    async def snooze(self, job: Job, delay: Delay, reason: Optional[str] = None) -> bool:
        return bool(await self._call(job, SNOOZE, [interval(delay), reason and text(reason)]))

    async def _call(self, job: Job, sql: str, values: List[Any]) -> Any:
        settlement = Settlement(job, sql, values)
        self.waiting.put_nowait(settlement)
        return await settlement.answer

    async def run(self) -> None:
        """Sends settlements until it is cancelled."""
        while True:
            await self._send_waiting(await self.waiting.get())

    async def _send_waiting(self, first: Settlement) -> None:
        settlements = [first]
        while not self.waiting.empty():
            settlements.append(self.waiting.get_nowait())
        together, alone = [s for s in settlements if not s.alone], [s for s in settlements if s.alone]
        for start in range(0, len(together), MOST):
            await self._send(together[start:start + MOST])
        for settlement in alone:
            await self._send([settlement])

    async def _send(self, settlements: List[Settlement]) -> None:
        """Sends one statement; after a failure the settlements go back to the queue, each for itself."""
        settlements = [s for s in settlements if not s.answer.done()]   # a cancelled task asks no more
        if not settlements:
            return
        for settlement in settlements:
            settlement.job._settling = True
        try:
            answers = await self._ask(settlements)
        except Gone:
            for settlement in settlements:
                self._again(settlement)
        except psycopg.errors.LockNotAvailable:     # the others must not wait for that row
            for settlement in settlements:
                self._again(settlement, REPEAT if len(settlements) == 1 else 0)
        except Exception as error:
            for settlement in settlements:
                if len(settlements) == 1:
                    settlement.finish(error=error)
                else:
                    self._again(settlement)
        else:
            for settlement in settlements:
                settlement.finish(answers.get(settlement.job.id))

    async def _ask(self, settlements: List[Settlement]) -> Dict[Any, Any]:
        if len(settlements) == 1:
            values = [*settlements[0].values, lock_ms(self.lease, settlements[0].again)]
            rows = await self.link.query(settlements[0].sql, values, self.timeout, LOCKED)
            return {settlements[0].job.id: rows[0]["answer"]}
        ids, tokens, results = zip(*(s.values for s in settlements))
        rows = await self.link.query(COMPLETE_MANY, [list(ids), list(tokens), list(results), lock_ms(self.lease)],
                                     self.timeout, LOCKED)
        return {row["answer"]: True for row in rows}

    def _again(self, settlement: Settlement, delay: float = 0) -> None:
        settlement.job._settling = False
        if settlement.job._expired():
            settlement.finish(None)
        else:
            settlement.alone = settlement.again = True
            asyncio.get_running_loop().call_later(delay, self.waiting.put_nowait, settlement)


def failure_values(error: BaseException) -> List[Any]:
    """Returns the arguments of fail after the token: an unforeseen exception brings its stack."""
    if isinstance(error, Failure):
        return [message_of(error), error.retryable, error.code and code_of(error.code), error.retry_after,
                storable(error.details)]
    code = code_of(getattr(error, "sqlstate", None) or type(error).__name__)
    stack = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return [message_of(error), None, code, None, jsonb({"stack": text(stack[-8000:])})]


def message_of(error: BaseException) -> str:
    """Returns the message of a failure: the class says what an unforeseen exception is."""
    return text(str(error) if isinstance(error, Failure) else f"{type(error).__name__}: {error}")


def reason_of(error: Exception) -> str:
    """Returns the message of an error, of the server's without the context."""
    return (error.diag.message_primary if isinstance(error, psycopg.Error) else None) or str(error)


def code_of(value: Any) -> str:
    """Returns an error code of at most 255 bytes, which the server takes."""
    return text(value).encode()[:255].decode(errors="ignore")


def storable(details: Any) -> Any:
    """Returns the jsonb of a failure's details; details that jsonb refuses become a text."""
    try:
        return jsonb(details)
    except (TypeError, ValueError):
        return jsonb({"details": text(repr(details))})
