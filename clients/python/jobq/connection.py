"""A connection that is made again after a failure, with back-off."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from typing import Any, Callable, Dict, List, Optional

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import dict_row

BACK_OFF_FIRST, BACK_OFF_LAST = 0.1, 10.0
CONNECT = {"client_encoding": "utf8", "connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
# SQLSTATEs that another try may not meet: classes connection, transaction, resources, state,
# operator, system, internal error; a server in recovery; a prepared statement whose result has
# changed, or that is gone: a new connection has none.
TRANSIENT = ("08", "40", "53", "55", "57", "58", "XX", "25006", "0A000", "26000")


LOCKED = "55P03"    # SQLSTATE of a statement that a row lock has ended


def bounded(sql: str, more: str = "") -> str:
    """Returns a query whose waits for row locks end after a parameter, of lock_ms(), before those of `more`."""
    return f"{sql} FROM (SELECT set_config('lock_timeout', %s::text, true)) AS bound{more}"


def lock_ms(lease: float, again: bool = False) -> str:
    """Returns the milliseconds that a statement waits for a row lock: less after a first try."""
    most = min(1000, max(50, round(lease * 1000 / 12)))
    return str(most // 5 if again else most)


class Gone(Exception):
    """A statement failed in a way that another try may not: its outcome is unknown."""


def is_transient(error: psycopg.Error) -> bool:
    """True if another try may succeed; an error without an SQLSTATE is one of the connection."""
    if error.sqlstate is None:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return error.sqlstate.startswith(TRANSIENT)


class TimedOut(Gone):
    """The server did not answer the statement in time, for a lock perhaps."""


class Link:
    """One autocommit connection for statements that follow one another."""

    def __init__(self, name: str, dsn: str, pooler: bool, log: Callable[..., None]):
        self.name = name
        self.dsn = dsn
        self.pooler = pooler
        given = psycopg.conninfo.conninfo_to_dict(dsn)      # an error of the DSN is one at once
        self.defaults = {key: value for key, value in CONNECT.items() if key not in given}
        self.log = log
        self.connection: Optional[AsyncConnection] = None
        self.delay = BACK_OFF_FIRST
        self.busy = asyncio.Lock()
        self.ending = False
        self.was_connected = False

    async def connected(self) -> AsyncConnection:
        """Returns the open connection; one failure is one delay, then Gone."""
        if self.connection is None:
            try:
                self.connection = await AsyncConnection.connect(
                    self.dsn, autocommit=True, row_factory=dict_row, **self.defaults)
                if self.pooler:
                    self.connection.prepare_threshold = None
                self.was_connected = True
            except psycopg.Error as error:
                await self.failed(error)
        return self.connection

    async def query(self, sql: str, values: List[Any], timeout: float, final: str = "") -> List[Dict[str, Any]]:
        """Runs one statement; raises Gone after a lost connection, other errors as they are.

        An error with the SQLSTATE `final` is one that another try would meet again.
        """
        async with self.busy:
            connection = await self.connected()
            run = asyncio.ensure_future(self._rows(connection, sql, values))
            try:
                done, _ = await asyncio.wait({run}, timeout=timeout)
                if not done and not await self._cancelled(run, min(timeout, 2.0)):
                    await self.failed(TimeoutError(f"no answer in {timeout:g} s"))
                rows = run.result()
            except psycopg.errors.QueryCanceled as error:
                if self.ending:
                    return []
                raise TimedOut(str(error)) from None
            except psycopg.Error as error:
                if not is_transient(error) or error.sqlstate == final:
                    raise
                await self.failed(error)
            self.delay = BACK_OFF_FIRST
            return rows

    @staticmethod
    async def _rows(connection: AsyncConnection, sql: str, values: List[Any]) -> List[Dict[str, Any]]:
        return await (await connection.execute(sql, values)).fetchall()

    async def _cancelled(self, run: "asyncio.Future[Any]", patience: float) -> bool:
        """Cancels the statement that runs; False if the server does not answer that either."""
        self.interrupt()
        done, _ = await asyncio.wait({run}, timeout=patience)
        if not done:
            run.cancel()
        return bool(done)

    async def failed(self, error: BaseException) -> None:
        """Closes the connection, waits for the back-off with jitter, raises Gone."""
        await self.close()
        if not self.ending:
            delay = self.delay * random.uniform(0.5, 1)
            self.delay = min(self.delay * 2, BACK_OFF_LAST)
            level, event = ("warning", "reconnecting") if self.was_connected else ("error", "connect_failed")
            self.log(level, event, link=self.name, error=str(error).strip(), delay=round(delay, 3))
            await asyncio.sleep(delay)
        raise Gone(str(error)) from error

    def interrupt(self) -> None:
        """Cancels the statement that runs; in a thread, because libpq connects for it and waits."""
        if self.connection is not None:
            try:
                cancel = self.connection.pgconn.get_cancel()
            except psycopg.Error:
                return
            with contextlib.suppress(RuntimeError):     # no thread: the statement ends by itself
                threading.Thread(target=_send_cancel, args=(cancel,), name="jobq cancel",
                                 daemon=True).start()

    async def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            try:
                await connection.close()
            except psycopg.Error:
                pass


def _send_cancel(cancel: Any) -> None:
    try:
        cancel.cancel()
    except psycopg.Error:
        pass
