"""The worker: claims jobs, runs their handlers, settles them."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import os
import random
import signal
import socket
import threading
import time
from datetime import timedelta
from typing import Any, Callable, ContextManager, Dict, List, Optional, Sequence, Set

import psycopg
from psycopg import sql

from .connection import BACK_OFF_FIRST, Gone, Link, TimedOut
from .errors import Permanent, Skip, Snooze, Stopped
from .heartbeat import Heart
from .job import Job
from .log import json_lines
from .settle import Settler, message_of, reason_of

LONGEST_WAIT = 20.0     # seconds: the maximum of claim's argument wait
MOST_JOBS = 1000        # the maximum of claim's argument max_jobs
ABANDON = 2.0           # seconds that a stopped handler has to end at shutdown
SETTLE = 10.0           # seconds for the last settlements at shutdown; then the leases run out
CLAIM = """SELECT c.id, c.job_type, c.payload::text, c.attempts, c.max_attempts, c.tenant, c.metadata::text,
    c.lease_token, extract(epoch FROM c.deadline)::float8 AS deadline, c.progress_data::text,
    extract(epoch FROM c.lease_expires_at - clock_timestamp())::float8 AS lease_left,
    extract(epoch FROM c.deadline - clock_timestamp())::float8 AS deadline_left
  FROM jobq.claim(%s::text[], %s::int, %s::text, lease => %s::interval, wait => %s::interval) AS c"""

_replaced: Dict[int, Any] = {}      # handlers of signals that a worker has replaced


def _after_fork() -> None:
    """Gives a forked process its signals back, which would be written to the worker's loop."""
    if _replaced:
        signal.set_wakeup_fd(-1)
    for number, handler in _replaced.items():
        signal.signal(number, handler)
    _replaced.clear()


if hasattr(os, "register_at_fork"):     # not on Windows
    os.register_at_fork(after_in_child=_after_fork)


class Refused(Permanent):
    """The database refuses a result, skip or snooze: no error of the handler."""


class Handler:
    def __init__(self, call: Callable[..., Any], batch: Optional[int], concurrency: Optional[int]):
        self.call = call
        self.batch = batch
        self.concurrency = concurrency
        self.running = 0
        self.threaded = not inspect.iscoroutinefunction(call)


class Worker:
    """Works jobs of the types that have a handler, until SIGTERM, SIGINT or stop().

    dsn          libpq connection string
    listen_dsn   a direct connection for LISTEN; without it the claim itself waits
    pooler       dsn is a pooler in transaction mode: claims do not wait, the worker polls
    concurrency  handlers at once; a batch counts as one
    lease        seconds; heartbeats go out each third of it
    poll         seconds between claims where nothing else wakes the worker
    grace        seconds that handlers have after SIGTERM; then jobs are released
    name         claim's argument worker
    log          called as log(level, event, **fields)
    signals      signals that stop the worker, while it runs in the main thread
    """

    def __init__(self, dsn: str = "", *, listen_dsn: Optional[str] = None, pooler: bool = False,
                 concurrency: int = 1, lease: float = 120.0, poll: float = 1.0, grace: float = 30.0,
                 name: Optional[str] = None, log: Callable[..., None] = json_lines,
                 signals: Sequence[int] = (signal.SIGTERM, signal.SIGINT)):
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")
        for option, value in (("lease", lease), ("poll", poll), ("grace", grace)):
            if not (0 <= value < float("inf")) or (value == 0 and option != "grace"):
                raise ValueError(f"{option} is out of range: {value}")
        self.dsn = dsn
        self.listen_dsn = listen_dsn
        self.pooler = pooler
        self.concurrency = concurrency
        self.lease = lease
        self.poll = poll
        self.grace = grace
        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        self.log = log
        self.signals = signals
        self.handlers: Dict[str, Handler] = {}
        self.hooks: List[Callable[[Job], ContextManager[Any]]] = []
        self.running: Set[Job] = set()
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._turn = 0

    # ---------- registration ----------

    def handler(self, job_type: str, *, batch: Optional[int] = None,
                concurrency: Optional[int] = None) -> Callable[[Callable], Callable]:
        """Registers a function or coroutine function: called with a Job, its return value is the result.

        With `batch` it is called with a list of up to so many jobs and returns a list of results, in
        which an exception instead of a result ends that job.  `concurrency` limits the handlers of the
        type that run at once, within that of the worker.
        """
        if batch is not None and not 1 <= batch <= MOST_JOBS:
            raise ValueError(f"batch must be between 1 and {MOST_JOBS}, not {batch}")
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")

        def register(call: Callable) -> Callable:
            self.handlers[job_type] = Handler(call, batch, concurrency)
            return call
        return register

    def around(self, hook: Callable[[Job], ContextManager[Any]]) -> Callable[[Job], ContextManager[Any]]:
        """Registers a hook: a context manager entered before the handler, left after the settlement.

        Then `job.outcome` and `job.error` are set.  OpenTelemetry's spans are such context managers.
        """
        self.hooks.append(hook)
        return hook

    # ---------- life ----------

    def run(self) -> None:
        """Works until SIGTERM, SIGINT or stop()."""
        asyncio.run(self.run_async())

    def run_until_empty(self) -> None:
        """Works until no job is due and no handler runs: for tests.

        Jobs that wait for a time or another attempt's delay are left.
        """
        asyncio.run(self.run_async(until_empty=True))

    def stop(self) -> None:
        """Begins the graceful stop, from any thread; the second call ends the grace."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop_now)

    async def run_async(self, *, until_empty: bool = False) -> None:
        """Works in the event loop of the caller; that of the main thread gets the signal handlers.

        With `until_empty` it returns when no job is due and no handler runs.
        """
        if not self.handlers:
            raise ValueError("the worker has no handler")
        self._loop, self._until_empty = asyncio.get_running_loop(), until_empty
        self._stopping, self._hurry = asyncio.Event(), asyncio.Event()
        self._wake, self._slot_free = asyncio.Event(), asyncio.Event()
        self._abandoned: "asyncio.Future[None]" = self._loop.create_future()
        self._tasks: Set["asyncio.Task[None]"] = set()
        self._left_out: Set[Handler] = set()    # of the claim that waits, because they are at their limit
        self._links = {name: Link(name, self.dsn, self.pooler, self.log)
                       for name in ("claim", "settle", "heartbeat")}
        self._settler = Settler(self._links["settle"], self.lease)
        self._heart = Heart(self._links["heartbeat"], self.lease, self.running, self.log)
        background = [asyncio.ensure_future(self._settler.run()), asyncio.ensure_future(self._heart.run())]
        if self.listen_dsn:
            background.append(asyncio.ensure_future(self._listen()))
        try:
            with self._signals():
                await self._work(background)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            for link in self._links.values():
                await link.close()
            self.log("info", "stopped")

    async def _work(self, background: List["asyncio.Future[None]"]) -> None:
        """Claims until the stop, then waits for the handlers; an error in the background ends it."""
        claims, stop = asyncio.ensure_future(self._claims()), asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait({claims, stop, *background}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not self._stopping.is_set():
            self._stop_now()
        await asyncio.wait({claims}, timeout=ABANDON)
        await self._drain()
        for task in (*background, claims):
            if task.done():
                task.result()
        claims.cancel()

    @contextlib.contextmanager
    def _signals(self) -> Any:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        former = {}
        for number in self.signals:
            handler = signal.getsignal(number)
            self._loop.add_signal_handler(number, self._stop_now)
            if handler != signal.getsignal(number):     # not the loop's own, which does nothing by itself
                former[number] = handler or signal.SIG_DFL
            _replaced[number] = former.get(number, signal.SIG_DFL)
        try:
            yield
        finally:
            for number in self.signals:
                self._loop.remove_signal_handler(number)
                _replaced.pop(number, None)
            for number, handler in former.items():
                signal.signal(number, handler)

    def _stop_now(self) -> None:
        """Begins the stop; a later call ends the grace."""
        if self._stopping.is_set():
            self._hurry.set()
            return
        self._stopping.set()
        self._wake.set()
        self._slot_free.set()
        self._links["claim"].ending = True
        self._links["claim"].interrupt()
        self.log("info", "stopping", running=len(self.running))

    async def _drain(self) -> None:
        """Waits for running handlers: the grace, then their stop, then without them."""
        hurry = asyncio.ensure_future(self._hurry.wait())
        await self._ended(self.grace, hurry)
        for job in self.running:
            job._end("shutdown")
        await self._ended(ABANDON, None)
        self._abandoned.cancel()
        hurry.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=SETTLE)

    async def _ended(self, seconds: float, hurry: Optional["asyncio.Future[Any]"]) -> None:
        if self._tasks:
            everything = asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.wait({everything, hurry} if hurry else {everything}, timeout=seconds,
                               return_when=asyncio.FIRST_COMPLETED)

    # ---------- claims ----------

    async def _claims(self) -> None:
        """Claims as long as slots are free; waits in the claim, for a notification, or for the poll."""
        link, first = self._links["claim"], True
        while not self._stopping.is_set():
            if len(self._tasks) >= self.concurrency:
                self._slot_free.clear()
                await self._slot_free.wait()
                continue
            self._wake.clear()
            idle, began = not self._tasks, time.monotonic()
            try:
                await link.connected()
                if first:
                    self.log("info", "started", worker=self.name, types=sorted(self.handlers))
                found = await self._claim_round(link)
            except TimedOut:    # a statement_timeout shorter than the wait: there was no job
                first = False
                if time.monotonic() - began < 1:
                    await self._pause(self.poll)
                continue
            except Gone:
                continue
            except psycopg.Error as error:
                self.log("error", "claim_refused", error=str(error))
                if first or self._until_empty:
                    raise
                found = False
                await self._pause(max(self.poll, 1.0))
            first = False
            if self._until_empty and not found:
                if idle:
                    self._stop_now()
                elif self._tasks:
                    await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            elif not found and not self._waits():
                await self._pause(self.poll)

    def _waits(self) -> bool:
        return not (self.pooler or self.listen_dsn or self._until_empty)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds * random.uniform(0.8, 1.2))

    async def _claim_round(self, link: Link) -> bool:
        """Claims once for each type with a batch and once for the others together; True if a job came.

        A claim of several types has at most as many jobs as slots are free.  For a type with a batch
        that would be its batch, however small, so it is claimed alone, and the others wait no longer
        than the poll.  Each round another one is the first, because that one may take all slots.
        """
        found, alone = False, [name for name, handler in self.handlers.items()
                               if handler.batch and len(self.handlers) > 1]
        together = {name: handler for name, handler in self.handlers.items() if name not in alone}
        self._turn = (self._turn + 1) % (len(alone) + 1)
        if alone and self._turn == len(alone):
            found = await self._claim_together(link, together, 0)
        for name in alone[self._turn:] + alone[:self._turn]:
            handler = self.handlers[name]
            if self._free(handler) > 0:
                found |= await self._claim(link, [name], self._free(handler) * handler.batch, 0)
        wait = 0.0 if found or not self._waits() else min(LONGEST_WAIT, self.poll) if alone else LONGEST_WAIT
        return await self._claim_together(link, together, wait) or found

    async def _claim_together(self, link: Link, handlers: Dict[str, Handler], wait: float) -> bool:
        """Claims for all these types that are below their limits; False after the poll without any."""
        free = {name: self._free(handler) for name, handler in handlers.items() if self._free(handler) > 0}
        if not free:
            if wait > 0:
                await self._pause(wait)
            return False
        if await self._claim_by_room(link, free):
            return True
        free = {name: self._free(handlers[name]) for name in free if self._free(handlers[name]) > 0}
        if not free:
            return False
        size = next(iter(handlers.values())).batch if len(self.handlers) == 1 else None
        self._left_out = {handler for name, handler in handlers.items() if name not in free}
        try:
            return await self._claim(link, list(free), min(free.values()) * (size or 1), wait)
        finally:
            self._left_out = set()

    async def _claim_by_room(self, link: Link, free: Dict[str, int]) -> bool:
        """Claims types with less room each for itself, then the others: a claim of all gives each only the least."""
        found, most = False, max(free.values())
        narrow = [name for name in free if free[name] < most]
        for types in [*([name] for name in narrow), [name for name in free if name not in narrow]] if narrow else []:
            room = min(self._free(self.handlers[name]) for name in types)
            if room > 0:
                found |= await self._claim(link, types, room, 0)
        return found

    def _free(self, handler: Handler) -> int:
        """Returns the handlers of the type that may begin."""
        free = 0 if self._stopping.is_set() else self.concurrency - len(self._tasks)
        return free if handler.concurrency is None else min(free, handler.concurrency - handler.running)

    async def _claim(self, link: Link, types: List[str], most: int, wait: float) -> bool:
        rows = await link.query(CLAIM, [types, min(most, MOST_JOBS), self.name, timedelta(seconds=self.lease),
                                        timedelta(seconds=wait)], wait + 10)
        if rows:
            self.log("info", "claimed", jobs=len(rows))
        batches: Dict[str, List[Job]] = {}
        for row in rows:
            handler = self.handlers[row["job_type"]]
            job = Job(row, self._heart, self._loop, handler.threaded)
            self.running.add(job)
            self._heart.watch(job)
            batch = batches.setdefault(job.type if handler.batch else str(job.id), [])
            batch.append(job)
            if handler.batch and len(batch) == handler.batch:
                self._begin(handler, batches.pop(job.type))
        for jobs in batches.values():
            self._begin(self.handlers[jobs[0].type], jobs)
        return bool(rows)

    def _notified(self) -> None:
        self._wake.set()
        self._heart.beat_all()

    async def _listen(self) -> None:
        """Wakes claims and heartbeats at each notification; a new connection wakes them once."""
        link = Link("listen", self.listen_dsn or "", False, self.log)
        try:
            while True:
                try:
                    connection, delay = await link.connected(), link.delay
                    rows = await link.query("SELECT jobq.channel(t) AS channel FROM unnest(%s::text[]) t",
                                            [list(self.handlers)], 10)
                    link.delay = delay      # a standby answers this, and refuses LISTEN
                    for row in rows:
                        await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(row["channel"])))
                    link.delay = BACK_OFF_FIRST
                    self._notified()    # what was sent before is lost
                    async for _ in connection.notifies():
                        self._notified()
                except Gone:
                    pass
                except psycopg.Error as error:
                    with contextlib.suppress(Gone):
                        await link.failed(error)
        finally:
            await link.close()

    # ---------- jobs ----------

    def _begin(self, handler: Handler, jobs: List[Job]) -> None:
        task = asyncio.ensure_future(self._run(handler, jobs))
        self._tasks.add(task)
        handler.running += 1
        task.add_done_callback(lambda task: self._ended_task(handler, task))

    def _ended_task(self, handler: Handler, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        handler.running -= 1
        self._slot_free.set()
        if handler.concurrency:
            self._wake.set()
        if handler in self._left_out:   # the claim that waits does not have its type
            self._links["claim"].interrupt()
        if not task.cancelled() and task.exception() is not None:
            self.log("error", "internal_error", error=repr(task.exception()))

    async def _run(self, handler: Handler, jobs: List[Job]) -> None:
        try:
            with contextlib.ExitStack() as stack:
                refused = {job: error for job in jobs for error in [job._unreadable or self._enter_hooks(stack, job)] if error}
                ready = [job for job in jobs if job not in refused]
                results = dict(refused)
                if ready:
                    results.update(zip(ready, await self._results(handler, ready)))
                await asyncio.gather(*(self._settle(job, result) for job, result in results.items()))
        finally:
            self.running.difference_update(jobs)
            for job in jobs:
                if job._timer is not None:
                    job._timer.cancel()     # it holds the job, until the end of its lease

    def _enter_hooks(self, stack: contextlib.ExitStack, job: Job) -> Optional[Exception]:
        """Enters the hooks of a job; returns the error that fails it instead of its handler."""
        try:
            for hook in self.hooks:
                context = hook(job)
                context.__enter__()
                stack.callback(self._leave_hook, context, job)
        except Exception as error:
            self._log_job("error", "hook_failed", job, error=repr(error))
            return error
        return None

    def _leave_hook(self, context: ContextManager[Any], job: Job) -> None:
        try:
            context.__exit__(None, None, None)
        except Exception as error:
            self._log_job("error", "hook_failed", job, error=repr(error))

    def _log_job(self, level: str, event: str, job: Job, **fields: Any) -> None:
        self.log(level, event, job_id=job.id, job_type=job.type, attempt=job.attempts, **fields)

    async def _results(self, handler: Handler, jobs: List[Job]) -> List[Any]:
        """Calls the handler; returns a result or an exception for each job."""
        if self._stopping.is_set():
            return [Stopped("shutdown")] * len(jobs)
        for job in jobs:
            job._began = time.monotonic()
            self._log_job("info", "job_started", job)
        ok, value = await self._call(handler, jobs)
        if not ok:
            return [value] * len(jobs)
        if not handler.batch:
            return [value]
        if not isinstance(value, (list, tuple)) or len(value) != len(jobs):
            wrong = Permanent(f"the batch handler returned no list of {len(jobs)} results")
            return [wrong] * len(jobs)
        return list(value)

    async def _call(self, handler: Handler, jobs: List[Job]) -> Any:
        """Runs the handler in a task or a thread; returns (True, result) or (False, exception)."""
        argument = jobs if handler.batch else jobs[0]
        if handler.threaded:
            try:
                inner, stop = self._thread(handler.call, argument), None
            except RuntimeError as error:
                self.log("error", "internal_error", error=repr(error))
                return False, Stopped("no thread")
        else:
            inner = asyncio.ensure_future(_guarded(handler.call, argument))
            stop = inner.cancel
        for job in jobs:
            job._interrupt = lambda: stop() if stop and all(j.stop_reason for j in jobs) else None
            if job.stop_reason:
                job._interrupt()
        await asyncio.wait({inner, self._abandoned}, return_when=asyncio.FIRST_COMPLETED)
        if not inner.done():
            return False, Stopped("shutdown")
        return (False, Stopped("shutdown")) if inner.cancelled() else inner.result()

    def _thread(self, call: Callable[..., Any], argument: Any) -> "asyncio.Future[Any]":
        """Runs a handler in a daemon thread, which does not keep the process from ending."""
        future: "asyncio.Future[Any]" = self._loop.create_future()
        context, loop = contextvars.copy_context(), self._loop

        def report(answer: Any) -> None:
            if not future.done():
                future.set_result(answer)

        def run() -> None:
            try:
                answer = (True, context.run(call, argument))
            except BaseException as error:
                answer = (False, error)
            with contextlib.suppress(RuntimeError):     # the loop is closed: an abandoned handler
                loop.call_soon_threadsafe(report, answer)

        threading.Thread(target=run, name=f"jobq {getattr(call, '__name__', 'handler')}", daemon=True).start()
        return future

    async def _settle(self, job: Job, result: Any) -> None:
        """Sends the settlement that the result means; sets the job's outcome and logs it."""
        job.error = result if isinstance(result, BaseException) else None
        if job._events:
            await self._heart.flush_events(job)
        own_transaction, job._own_transaction = job._own_transaction, False
        fields: Dict[str, Any] = {}
        try:
            job.outcome = await self._outcome(job, result, own_transaction, fields)
        except Exception as error:
            job.outcome = await self._refused(job, result, error, fields)
        if job.outcome == "lost" and own_transaction and not isinstance(result, BaseException):
            job.outcome, job.error, fields = "completed", None, {}
        level = {"failed": "warning", "lost": "error"}.get(job.outcome, "info")
        fields.setdefault("outcome", job.outcome)
        self._log_job(level, f"job_{job.outcome}", job, duration_ms=job._duration_ms(), **fields)

    async def _refused(self, job: Job, result: Any, error: Exception, fields: Dict[str, Any]) -> str:
        """Fails a job for good whose result, skip or snooze the database refuses: too large, no JSON."""
        if isinstance(result, BaseException) and not isinstance(result, (Skip, Snooze)):
            self._log_job("error", "internal_error", job, error=repr(error))
            return "lost"
        what = type(result).__name__ if isinstance(result, BaseException) else "the result"
        job.error = Refused(f"{what} is refused: {reason_of(error)}", code=getattr(error, "sqlstate", None) or "22023")
        return await self._outcome(job, job.error, False, fields)

    async def _outcome(self, job: Job, result: Any, own_transaction: bool, fields: Dict[str, Any]) -> str:
        stopped = isinstance(result, (Stopped, asyncio.CancelledError))
        if job.stop_reason in ("cancel", "shutdown") and isinstance(result, BaseException):
            stopped = not isinstance(result, (Skip, Snooze, Refused))   # an error of its own after the stop
        if own_transaction and not isinstance(result, BaseException):
            await self._settler.complete(job, result)   # true if the handler's transaction was rolled back
            return "completed"
        if job.stop_reason == "lost":
            return "lost"
        if stopped and job.stop_reason == "cancel":
            return "cancelled" if await self._settler.fail(job, Permanent("cancelled")) else "lost"
        if isinstance(result, BaseException):
            await self._flushed(job)
        if stopped and self._stopping.is_set():
            return "released" if await self._settler.snooze(job, 0, "the worker stops") else "lost"
        if stopped and getattr(result, "reason", None) == "lost":   # of another job of its batch
            return "released" if await self._settler.snooze(job, 0, "another job of the batch was lost") else "lost"
        if stopped and getattr(result, "reason", None) == "no thread":
            return "released" if await self._settler.snooze(job, 1, "no thread is left") else "lost"
        if isinstance(result, Skip):
            return "skipped" if await self._settler.skip(job, result) else "lost"
        if isinstance(result, Snooze):
            return "snoozed" if await self._settler.snooze(job, result.delay, result.reason) else "lost"
        if isinstance(result, BaseException):
            fields["error"] = message_of(result)
            answer = await self._settler.fail(job, result)
            if answer:
                fields["outcome"] = answer
            return "failed" if answer else "lost"
        return "completed" if await self._settler.complete(job, result) else "lost"

    async def _flushed(self, job: Job) -> None:
        """Sends progress that the handler left unsent, for the next attempt to find."""
        if job._unsent is not None:
            with contextlib.suppress(Stopped, psycopg.Error, asyncio.TimeoutError):
                limit = ABANDON if self._stopping.is_set() else None
                await asyncio.wait_for(self._heart.flush(job, True), limit)


async def _guarded(call: Callable[..., Any], argument: Any) -> Any:
    """Returns (True, result) or (False, exception), so that no exception ends the event loop."""
    try:
        return True, await call(argument)
    except asyncio.CancelledError as error:
        return False, error
    except BaseException as error:
        return False, error
