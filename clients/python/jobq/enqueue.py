"""Enqueueing on the caller's connection, in the caller's transaction."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Awaitable, Dict, List, Optional, Sequence, TypedDict, Union, overload
from uuid import UUID

from psycopg import AsyncConnection, Connection
from psycopg.rows import tuple_row

from .errors import Delay, interval
from .values import jsonb, Jsonb

if TYPE_CHECKING:
    from typing_extensions import Unpack

_OPTIONS = {
    "priority": "int", "delay": "interval", "scheduled_for": "timestamptz", "max_attempts": "int",
    "timeout": "interval", "backoff": "jsonb", "unique_key": "text", "on_conflict": "text",
    "unique_for": "interval", "concurrency_key": "text", "keep_completed": "interval", "tenant": "text",
    "metadata": "jsonb", "keep_dead": "interval", "after": "uuid[]", "after_rule": "text",
}


def _backoff(value: Dict[str, Any]) -> Any:
    """Returns the jsonb of a backoff, whose durations are intervals as text: a number is seconds."""
    return jsonb({name: f"{part} seconds" if name in ("base", "max") and isinstance(part, (int, float)) else part
                  for name, part in value.items()})


_TO_SQL = {"jsonb": jsonb, "backoff": _backoff, "interval": interval, "uuid[]": lambda ids: [str(id) for id in ids]}


class ManyOptions(TypedDict, total=False):
    """Options of enqueue_many; None is as if not given."""

    priority: Optional[int]
    delay: Optional[Delay]
    scheduled_for: Optional[datetime]
    max_attempts: Optional[int]
    timeout: Optional[Delay]
    backoff: Optional[Dict[str, Any]]
    concurrency_key: Optional[str]
    keep_completed: Optional[Delay]
    tenant: Optional[str]
    metadata: Any
    keep_dead: Optional[Delay]
    after: Optional[Sequence[Union[UUID, str]]]
    after_rule: Optional[str]
    traceparent: Optional[str]


class Options(ManyOptions, total=False):
    """Options of enqueue."""

    unique_key: Optional[str]
    on_conflict: Optional[str]
    unique_for: Optional[Delay]


@overload
def enqueue(connection: Connection[Any], job_type: str, payload: Any = ...,
            **options: Unpack[Options]) -> UUID: ...
@overload
def enqueue(connection: AsyncConnection[Any], job_type: str, payload: Any = ...,
            **options: Unpack[Options]) -> Awaitable[UUID]: ...


def enqueue(connection: Any, job_type: str, payload: Any = {}, *,
            priority: Optional[int] = None, delay: Optional[Delay] = None,
            scheduled_for: Optional[datetime] = None, max_attempts: Optional[int] = None,
            timeout: Optional[Delay] = None, backoff: Optional[Dict[str, Any]] = None,
            unique_key: Optional[str] = None, on_conflict: Optional[str] = None,
            unique_for: Optional[Delay] = None, concurrency_key: Optional[str] = None,
            keep_completed: Optional[Delay] = None, tenant: Optional[str] = None,
            metadata: Any = None, keep_dead: Optional[Delay] = None,
            after: Optional[Sequence[Union[UUID, str]]] = None, after_rule: Optional[str] = None,
            traceparent: Optional[str] = None) -> Any:
    """Enqueues a job; returns its id, on an AsyncConnection an awaitable of the id.

    The job exists once the caller's transaction commits.  A payload of None is JSON's null.
    `traceparent` becomes a key of the metadata, and `job.traceparent` in the handler.
    """
    metadata = _traced(metadata, traceparent)
    options = {name: value for name, value in locals().items() if name in _OPTIONS and value is not None}
    return _call(connection, "SELECT jobq.enqueue(%s::text, %s::jsonb", [job_type, _payload(payload)],
                 options, _first)


@overload
def enqueue_many(connection: Connection[Any], job_type: str, payloads: Sequence[Any],
                 **options: Unpack[ManyOptions]) -> List[UUID]: ...
@overload
def enqueue_many(connection: AsyncConnection[Any], job_type: str, payloads: Sequence[Any],
                 **options: Unpack[ManyOptions]) -> Awaitable[List[UUID]]: ...


def enqueue_many(connection: Any, job_type: str, payloads: Sequence[Any], *, traceparent: Optional[str] = None,
                 **options: Any) -> Any:
    """Enqueues a job for each payload; returns the ids in the same order.

    Options are those of `enqueue`, without `unique_key`, `unique_for` and `on_conflict`.
    """
    if isinstance(payloads, (str, bytes, dict)):
        raise TypeError(f"payloads is a {type(payloads).__name__}, no list of payloads")
    unknown = set(options) - (set(_OPTIONS) - {"unique_key", "unique_for", "on_conflict"})
    if unknown:
        raise TypeError(f"enqueue_many() has no option {sorted(unknown)[0]!r}")
    options["metadata"] = _traced(options.get("metadata"), traceparent)
    return _call(connection, "SELECT jobq.enqueue_many(%s::text, %s::jsonb[]",
                 [job_type, [_payload(payload) for payload in payloads]], options, _all)


def _traced(metadata: Any, traceparent: Optional[str]) -> Any:
    return metadata if traceparent is None else {**(metadata or {}), "traceparent": traceparent}


def _payload(value: Any) -> Jsonb:
    return Jsonb(None) if value is None else jsonb(value)


def _call(connection: Any, call: str, values: List[Any], options: Dict[str, Any], answer: Any) -> Any:
    for name, value in options.items():
        if value is not None:
            kind = _OPTIONS[name]
            call += f", {name} => %s::{kind}"
            values.append(_TO_SQL.get("backoff" if name == "backoff" else kind, lambda same: same)(value))
    cursor = connection.cursor(row_factory=tuple_row).execute(call + ")", values)
    return _later(cursor, answer) if isinstance(connection, AsyncConnection) else answer(cursor.fetchall())


async def _later(cursor: Awaitable[Any], answer: Any) -> Any:
    return answer(await (await cursor).fetchall())


def _first(rows: List[Any]) -> UUID:
    return rows[0][0]


def _all(rows: List[Any]) -> List[UUID]:
    return [row[0] for row in rows]
