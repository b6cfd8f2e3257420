"""The library's functions, on jobq: jobs, tasks, events and artifacts in PostgreSQL.

Each takes the caller's psycopg connection and is part of its transaction.  A job is a run of a
workflow, a task is one of its steps, a service is a job type.  The object store is the directory
of MEDIA_STORE.
"""
from __future__ import annotations

import hashlib, mimetypes, os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Iterator, Optional
from uuid import UUID, uuid4

import jobq
from psycopg import sql
from psycopg.rows import class_row, dict_row
from psycopg.types.json import Jsonb

STORE = Path(os.environ.get("MEDIA_STORE", "store"))


@dataclass(frozen=True)
class Task:
    id: UUID
    job_id: UUID
    key: str
    service: str
    payload: Any
    attempt: int
    lease_token: Optional[UUID] = None


class Lost(Exception):
    """The task is another worker's by now: roll back, and claim the next one."""


def rows(db, query, *values) -> list:
    return db.cursor(row_factory=dict_row).execute(query, values).fetchall()


def value(db, query, *values) -> Any:
    return next(iter(rows(db, query, *values)[0].values()))


# ---- jobs ----
def create_job(db, workflow: str, payload: Any, **options: Any) -> UUID:
    """Starts a job: a run of the workflow's active version.  Options are those of jobq.enqueue."""
    return jobq.enqueue(db, workflow, payload, **options)


def get_job(db, job_id: UUID) -> dict:
    return rows(db, """SELECT workflow, version, status::text, round(progress) AS progress, current_task_key, tasks, error_msg
                         FROM jobq.workflow_runs WHERE id = %s""", job_id)[0]


def cancel_job(db, job_id: UUID, reason: Optional[str] = None) -> bool:
    return value(db, "SELECT jobq.cancel_job(%s, %s)", job_id, reason)


def retry_job(db, job_id: UUID, from_task: Optional[str] = None) -> bool:
    """Runs the failed tasks again and what is behind them, or all from one on."""
    return value(db, "SELECT jobq.retry_workflow(%s, %s)", job_id, from_task)


# ---- tasks ----
def select_runnable(db, *services: str, limit: int = 10) -> list[Task]:
    """Returns the tasks that may be claimed, in the order of all services: that of their jobs.

    It only looks.  The claim decides, by the limits of the services, too.
    """
    return db.cursor(row_factory=class_row(Task)).execute("""
        SELECT j.id, j.workflow_id AS job_id, j.task_key AS key, j.job_type AS service, j.payload, j.attempts AS attempt
          FROM jobq.jobs j JOIN jobq.workflow_runs r ON r.id = j.workflow_id
         WHERE j.status IN ('pending', 'retry') AND j.scheduled_for <= now() AND j.job_type = ANY (%s)
         ORDER BY j.priority DESC, r.position, j.id LIMIT %s""", [list(services), limit]).fetchall()


def claim(db, *services: str, worker: Optional[str] = None, lease: float = 120, wait: float = 0) -> Optional[Task]:
    """Claims the first runnable task of the services; waits so many seconds for one.  Commit before the work."""
    claimed = rows(db, "SELECT id, lease_token FROM jobq.claim(%s, 1, %s, lease => %s, wait => %s)",
                   list(services), worker, timedelta(seconds=lease), timedelta(seconds=wait))
    return task_of(db, **claimed[0]) if claimed else None


def task_of(db, id: UUID, lease_token: UUID) -> Task:
    """Returns the task of a claimed job, as jobq.Worker has it."""
    return db.cursor(row_factory=class_row(Task)).execute("""
        SELECT id, workflow_id AS job_id, task_key AS key, job_type AS service, payload, attempts AS attempt, %s::uuid AS lease_token
          FROM jobq.jobs WHERE id = %s""", [lease_token, id]).fetchone()


def heartbeat(db, task: Task, progress: Optional[float] = None, data: Any = None) -> None:
    """Keeps the task for another length of its lease."""
    state = value(db, "SELECT jobq.heartbeat(%s, %s, %s, %s)", task.id, task.lease_token, progress, data and Jsonb(data))
    if state != "ok":
        raise Lost(state)


def mark_task_done(db, task: Task, result: Any = None) -> None:
    if not value(db, "SELECT jobq.complete(%s, %s, %s)", task.id, task.lease_token, Jsonb(result)):
        raise Lost(task.id)


def mark_task_failed(db, task: Task, error: str, code: Optional[str] = None, retryable: Optional[bool] = None) -> str:
    """Returns retry, after the service's backoff, or error: no attempt is left, or it is permanent."""
    if (state := value(db, "SELECT jobq.fail(%s, %s, %s, %s, %s)", task.id, task.lease_token, error, retryable, code)) == "lost":
        raise Lost(task.id)
    return state


def mark_task_skipped(db, task: Task, reason: str) -> None:
    if not value(db, "SELECT jobq.skip_job(%s, %s, %s)", task.id, task.lease_token, reason):
        raise Lost(task.id)


def find_stuck(db, lease: float = 120) -> list[dict]:
    """Returns the tasks whose services, with such leases, have sent no heartbeat for half of one."""
    return rows(db, """SELECT id, job_type AS service, worker, lease_expires_at FROM jobq.jobs
                        WHERE status = 'running' AND lease_expires_at < clock_timestamp() + %s::interval / 2""", timedelta(seconds=lease))


# ---- events ----
def append_task_event(db, task: Task, type: str, message: str, data: Any = None, level: str = "info") -> None:
    value(db, "SELECT jobq.log_event(%s, %s, %s, %s, %s, %s)", message, level, type, data and Jsonb(data), task.id, task.lease_token)


def list_events(db, job_id: UUID) -> list[dict]:
    """Returns the events of a job and of its tasks, oldest first."""
    return rows(db, """SELECT e.ts, t.task_key, e.attempt, e.type, e.message, e.data
                         FROM jobq.jobs t, jobq.job_timeline(t.id) e WHERE %s IN (t.id, t.workflow_id) ORDER BY e.ts, e.id""", job_id)


def archive_rows(db, what: str, since: str, until: str) -> str:
    """Writes a range of events, history or artifacts to the store, as lines of JSON by month; returns the key.

    A day may have several ranges, so the key has both bounds, in UTC.
    """
    key = value(db, """SELECT format('archive/%%s/%%s/%%s-%%s.jsonl', %s::text, to_char(low, 'YYYY-MM'), to_char(low, form), to_char(high, form))
                         FROM (SELECT %s::timestamptz AT TIME ZONE 'UTC', %s::timestamptz AT TIME ZONE 'UTC', 'YYYYMMDD"T"HH24MISS"Z"') bounds(low, high, form)""",
                what, since, until)
    with put(key) as file, db.cursor() as cursor:
        for line, in cursor.stream("SELECT jobq.archive(NULL, what => %s, expires_from => %s, expires_to => %s)", [what, since, until]):
            file.write(line.encode() + b"\n")
    return key


# ---- artifacts ----
def record_task_artifact(db, task: Task, path: str, kind: str = "output") -> str:
    """Stores a file under outputs/<job>/<task>/<name>.<ext>, and records it; returns the key."""
    path, digest, size = Path(path), hashlib.sha256(), 0
    key = value(db, "SELECT jobq.build_key(%s, %s, %s, %s, %s)", task.job_id, task.key, kind, path.suffix[1:], path.stem)
    with path.open("rb") as source, put(key) as file:
        while piece := source.read(1 << 20):
            digest.update(piece)
            size += file.write(piece)
        heartbeat(db, task)     # Lost: no object; the row stays locked until the transaction ends
    value(db, """SELECT jobq.record_artifact(%s, %s, 'media', %s, %s, %s, id => %s, lease_token => %s)""", key, kind, size,
          mimetypes.guess_type(path)[0], "sha256:" + digest.hexdigest(), task.id, task.lease_token)
    return key


def list_artifacts(db, job_id: UUID) -> list[dict]:
    return rows(db, "SELECT task_key, attempt, key, size_bytes, checksum FROM jobq.artifacts WHERE workflow_id = %s ORDER BY id", job_id)


class put:
    """Writes an object: it is there as a whole, or not at all, and after a crash, too."""

    def __init__(self, key: str):
        self.path = STORE / key

    def __enter__(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.part = self.path.with_name(f"{self.path.name}.{uuid4()}.part")
        self.file = self.part.open("wb")
        return self.file

    def __exit__(self, failed, *_):
        with self.file:
            if not failed:
                self.file.flush()
                os.fsync(self.file.fileno())
        self.part.unlink() if failed else self.part.rename(self.path)
        directory = os.open(self.path.parent, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)


# ---- notifications ----
def notifications(db, *services: str) -> Iterator[str]:
    """Yields the name of a service each time that it has a task to claim.  db is in autocommit."""
    channels = {value(db, "SELECT jobq.channel(%s)", service): service for service in services}
    for channel in channels:
        db.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
    yield ""    # it listens
    for notification in db.notifies():
        yield channels[notification.channel]
