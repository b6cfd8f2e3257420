"""Heartbeats of all running jobs in one statement."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Callable, List, Set

import psycopg

from .connection import LOCKED, Gone, Link, TimedOut, bounded, lock_ms
from .errors import LeaseLost, Stopped
from .job import Job

LOST = "55000"  # SQLSTATE of an event whose token is no longer valid
FLOOR = 0.1     # seconds between heartbeats that no handler waits for

LOG = """SELECT jobq.log_event(%s::text, %s::text, coalesce(%s::text, 'log'), %s::jsonb, %s::uuid, %s::uuid)"""
HEARTBEAT = bounded("SELECT h.id, jobq.heartbeat(h.id, h.token, h.progress, h.data) AS answer",
                    ", unnest(%s::uuid[], %s::uuid[], %s::numeric[], %s::jsonb[]) AS h(id, token, progress, data)")


class Heart:
    """Renews leases each third of their length, sends progress, and ends handlers of lost jobs."""

    def __init__(self, link: Link, lease: float, running: Set[Job], log: Callable[..., None]):
        self.link = link
        self.lease = lease
        self.running = running
        self.log = log
        self.wake = asyncio.Event()
        self.urgent = asyncio.Event()
        self.beaten = asyncio.Condition()
        self.all_due = False
        self.last = 0.0

    def watch(self, job: Job) -> None:
        """Ends the handler when the lease runs out without an answer of the server, or at the deadline."""
        if job not in self.running:
            return
        if job._own_transaction:        # its row is locked: the lease cannot end before the transaction
            job._timer = asyncio.get_running_loop().call_later(1, self.watch, job)
        elif job._expired():
            job._end("lost")
        else:
            left = job._ends_at() - time.monotonic()
            job._timer = asyncio.get_running_loop().call_later(left + 0.001, self.watch, job)

    def beat_all(self) -> None:
        """Sends a heartbeat of every running job soon."""
        self.all_due = True
        self.wake.set()

    async def flush(self, job: Job, ended: bool = False) -> None:
        """Returns when the server has the progress; raises Stopped if the handler must stop before.

        Of a handler that has `ended` only a lost lease is such a stop.
        """
        self.urgent.set()
        self.wake.set()
        async with self.beaten:
            while job._unsent is not None:
                job._refuse_own_transaction()
                stopped = job.stop_reason == "lost" if ended else job.stop_reason
                if stopped or job not in self.running:
                    raise LeaseLost() if job.stop_reason == "lost" else Stopped(job.stop_reason or "lost")
                await self.beaten.wait()
        refused, job._refused = job._refused, None
        if refused:
            raise refused

    async def flush_events(self, job: Job) -> None:
        """Returns when the server has the events of the job, or the job is lost."""
        self.urgent.set()
        self.wake.set()
        async with self.beaten:
            while job._events and job in self.running and job.stop_reason != "lost":
                await self.beaten.wait()

    async def run(self) -> None:
        """Sends heartbeats until it is cancelled."""
        due = time.monotonic() + self.lease / 3
        while True:
            await _set_or_late(self.wake, due)
            await _set_or_late(self.urgent, min(due, self.last + FLOOR))
            everything = self.all_due or time.monotonic() >= due
            self.all_due = False
            self.wake.clear()
            self.urgent.clear()
            self.last = time.monotonic()
            if everything:
                due = self.last + self.lease / 3
            await self._beat([job for job in self.running if everything or job._unsent is not None])
            for job in [job for job in self.running if job._events]:
                await self._send_events(job)
            async with self.beaten:
                self.beaten.notify_all()

    async def _send_events(self, job: Job) -> None:
        """Sends the events of a job, one after the other; those that the server refuses are logged."""
        while job._events and job.stop_reason != "lost":
            try:
                await self.link.query(LOG, [*job._events[0], job.id, job.lease_token], self.lease / 6, LOST)
            except Gone:
                self.wake.set()
                return
            except psycopg.Error as error:
                self.log("error", "event_refused", job_id=job.id, job_type=job.type, message=job._events[0][0], error=str(error))
            del job._events[0]

    async def _beat(self, jobs: List[Job]) -> None:
        """Sends heartbeats together; those of rows that were locked come last, each for itself."""
        locked = [job for job in jobs if job._locked]
        await self._beat_together([job for job in jobs if not job._locked])
        for job in locked:
            await self._beat_together([job], True)

    async def _beat_together(self, jobs: List[Job], again: bool = False) -> None:
        jobs = [job for job in jobs if not (job._own_transaction or job._settling) and job.stop_reason != "lost"]
        if not jobs:
            return
        jobs.sort(key=lambda job: job.id)   # rows are locked in the order of complete_many
        try:
            await self._ask(jobs, again)
        except (TimedOut, psycopg.errors.LockNotAvailable):     # the other leases must not wait for a locked row
            if len(jobs) == 1:
                jobs[0]._locked = True
                asyncio.get_running_loop().call_later(self.lease / 12, self.beat_all)
            await self._one_by_one(jobs)
        except Gone:
            self.beat_all()             # the back-off is over: again
        except psycopg.Error as error:
            if len(jobs) == 1:
                self.log("error", "heartbeat_refused", job_id=jobs[0].id, job_type=jobs[0].type, error=str(error))
                jobs[0]._unsent, jobs[0]._refused = None, error
            await self._one_by_one(jobs)

    async def _one_by_one(self, jobs: List[Job]) -> None:
        if len(jobs) > 1:
            for job in jobs:
                await self._beat_together([job], True)

    async def _ask(self, jobs: List[Job], again: bool) -> None:
        began = time.monotonic()
        sent = [job._unsent for job in jobs]
        values: List[Any] = [lock_ms(self.lease, again),
                             [job.id for job in jobs], [job.lease_token for job in jobs],
                             [unsent and unsent[0] for unsent in sent],
                             [unsent and unsent[1] for unsent in sent]]
        rows = await self.link.query(HEARTBEAT, values, self.lease / 6, LOCKED)
        answers = {row["id"]: row["answer"] for row in rows}
        for job, unsent in zip(jobs, sent):
            job._locked = False
            answer = answers.get(job.id)
            if answer == "lost":
                if not job._settling and not job._own_transaction:
                    job._end("lost")
                continue
            if answer is None:
                continue
            job._lease_until = began + self.lease
            if job._unsent is unsent:
                job._unsent = None
            if answer == "cancel":
                job._end("cancel")


async def _set_or_late(event: asyncio.Event, until: float) -> None:
    """Returns when the event is set, which it is at the time.

    asyncio.wait_for would lose a cancel that comes together with the event.
    """
    timer = asyncio.get_running_loop().call_later(max(0.0, until - time.monotonic()), event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()
