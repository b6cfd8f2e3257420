"""Workers in Python: jobq's client (clients/python), and a loop over psycopg and the table with
leases of ../driver/subjects.py.  The protocol of `work` is in ../README.md.

    workers.py work [--loop] --kind noop|row [--jobs N] [--concurrency C]
"""
import argparse
import asyncio
import json
import pathlib
import signal
import sys
import time

import psycopg

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python"))
import jobq  # noqa: E402

ROW = "INSERT INTO bench.result VALUES (%s, %s)"
# The statements of pull.c.
CLAIM = """UPDATE leases.job SET leased_until = now() + '2min', token = gen_random_uuid(), attempts = attempts + 1
 WHERE ctid = ANY (ARRAY(SELECT ctid FROM leases.job WHERE leased_until IS NULL AND scheduled_for <= now()
 ORDER BY priority DESC, scheduled_for, id FOR UPDATE SKIP LOCKED LIMIT 1)) RETURNING id, token, payload"""
COMPLETE = """WITH done AS (DELETE FROM leases.job WHERE id = %s AND token = %s RETURNING *)
 INSERT INTO leases.history (id, priority, scheduled_for, payload, attempts, finished_at)
 SELECT id, priority, scheduled_for, payload, attempts, clock_timestamp() FROM done"""


class Tally:
    """Counts acknowledged completions; `enough` is set by the last one, or by a SIGTERM."""

    def __init__(self, jobs):
        self.jobs = jobs
        self.done = 0
        self.finished = None
        self.enough = asyncio.Event()

    def add(self, n):
        if self.jobs and self.done >= self.jobs:
            return
        self.done += n
        self.finished = time.time()
        if self.jobs and self.done >= self.jobs:
            self.enough.set()


async def connect():
    return await psycopg.AsyncConnection.connect(autocommit=True, prepare_threshold=0)


async def new_handler(kind, concurrency):
    """The handler.  `row` commits by itself, on a connection that no other handler uses then."""
    if kind == "noop":
        async def noop(n):
            pass
        return noop
    idle = asyncio.LifoQueue()
    for _ in range(concurrency):
        connection = await connect()
        await connection.execute("SELECT 1")
        idle.put_nowait(connection)

    async def row(n):
        connection = await idle.get()
        try:
            await connection.execute(ROW, (n, time.time()))
        finally:
            idle.put_nowait(connection)
    return row


async def client(args, handler, tally):
    """jobq's client.  It logs a completion when that has committed."""
    worker = jobq.Worker(concurrency=args.concurrency, log=lambda level, event, **_: tally.add(event == "job_completed"), signals=())

    @worker.handler(args.kind)
    async def handle(job):
        await handler(job.payload["n"])
    running = []

    async def start():
        running.append(asyncio.create_task(worker.run_async()))

    async def stop():
        worker.stop()
        await running[0]
    return start, stop


async def loop(args, handler, tally):
    """So many tasks with a connection each: claim, handle, complete; each statement commits."""
    connections = [await connect() for _ in range(args.concurrency)]
    tasks = []

    async def work(connection):
        while not tally.enough.is_set():
            job = await (await connection.execute(CLAIM)).fetchone()
            if job is None:
                await asyncio.sleep(0.1)
                continue
            await handler(job[2]["n"])
            done = await connection.execute(COMPLETE, job[:2])
            tally.add(done.rowcount)

    async def start():
        tasks.extend(asyncio.create_task(work(connection)) for connection in connections)

    async def stop():
        await asyncio.gather(*tasks)
    return start, stop


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["work"])
    parser.add_argument("--loop", action="store_true")
    parser.add_argument("--kind", choices=["noop", "row"], default="noop")
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--concurrency", type=int, default=10)
    args = parser.parse_args()
    tally = Tally(args.jobs)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, tally.enough.set)
    handler = await new_handler(args.kind, args.concurrency)
    start, stop = await (loop if args.loop else client)(args, handler, tally)
    print("ready", flush=True)
    line = asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    enough = asyncio.create_task(tally.enough.wait())
    await asyncio.wait([line, enough], return_when=asyncio.FIRST_COMPLETED)
    if not line.done() or not line.result():
        return
    started, cpu = time.time(), time.process_time()
    await start()
    await tally.enough.wait()
    cpu = time.process_time() - cpu
    await stop()
    print(json.dumps({"jobs": tally.done, "started": started, "finished": tally.finished or time.time(), "cpu": cpu}), flush=True)

asyncio.run(main())
