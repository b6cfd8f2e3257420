#!/usr/bin/python3
"""The test worker of the Python client: handlers in threads, or with JOBQ_ASYNC as coroutines.

test/clients/README.md has the command line and the handlers.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../clients/python"))

import psycopg  # noqa: E402

import jobq  # noqa: E402

DSN = os.environ["JOBQ_DSN"]
DIRECTORY = os.environ.get("JOBQ_DIR", ".")


def effect_insert(job):
    return "INSERT INTO public.effects (job, token) VALUES (%s, %s)", [job.id, job.lease_token]


def opened(job):
    return os.path.exists(os.path.join(DIRECTORY, job.payload["gate"]))


def echo(job):
    return job.payload


def fail(job):
    raise jobq.Permanent("no such thing", code="E_FAIL", details={"payload": job.payload})


def flaky(job):
    if job.attempts == 1:
        raise jobq.Retry("not yet", code="E_FLAKY", retry_after=job.payload["retry_after"])
    return {"attempts": job.attempts}


def raise_(job):
    raise RuntimeError("boom")


def batch(jobs):
    return [{"n": job.payload["n"], "of": len(jobs)} for job in jobs]


def poison(job):
    os.kill(os.getpid(), signal.SIGKILL)


def slow(job):
    try:
        while not opened(job):
            job.wait(0.02)
    except jobq.Stopped as stop:
        jobq.json_lines("info", "handler_stopped", job_id=job.id, reason=stop.reason)
        raise
    return {"gate": job.payload["gate"]}


def effect(job):
    with psycopg.connect(DSN, prepare_threshold=None) as connection:
        connection.execute(*effect_insert(job))
        job.complete(connection, {"effect": True})


def checkpoint(job):
    if job.progress_data is None:
        job.checkpoint({"step": 1}, 50)
        raise jobq.Retry("resume", retry_after=0)
    return {"resumed": job.progress_data}


def skip(job):
    raise jobq.Skip("not needed", {"skipped": True})


def snooze(job):
    raise jobq.Snooze(job.payload["delay"], "later")


def progress(job):
    job.progress(30)
    while not opened(job):
        job.wait(0.02)


def log(job):
    job.log("it's here")
    job.log("half way", level="warning", data={"n": [1]})


def mixed(jobs):
    while "gate" in jobs[0].payload and not opened(jobs[0]):
        jobs[0].wait(0.02)
    return [jobq.Permanent("bad element") if job.payload["n"] == 2 else job.payload for job in jobs]


def malformed(job):
    job.progress(50, {"step": 1})
    raise jobq.Retry("boom", code="x" * 300, details={"no": "\ud800"}, retry_after="1 huor")


def badskip(job):
    raise jobq.Skip("not needed", {"no": "\u0000"})


def badsnooze(job):
    raise jobq.Snooze("1 huor")


def badcode(job):
    raise jobq.Permanent("gone", code=404)


def longcode(job):
    raise jobq.Permanent("gone", code="x" * 300)


def big(job):
    if job.progress_data is None:
        job.checkpoint({"data": "y" * 200000})
        raise jobq.Retry("resume", retry_after=0)
    return {"length": len(job.progress_data["data"]), "metadata": len(job.metadata["k"])}


def swallow(job):
    """Ignores the failure of its own completion, or reports a checkpoint after one."""
    with psycopg.connect(DSN, prepare_threshold=None) as connection:
        try:
            with connection.transaction():
                connection.execute(*effect_insert(job))
                if job.payload["how"] == "refused":
                    job.complete(connection, {"too large": "x" * 2000000})
                job.complete(connection, {"own": True})
                if job.payload["how"] == "late":
                    gate(job)
                if job.payload["how"] == "rolled back":
                    raise psycopg.Rollback()
        except psycopg.Error:
            jobq.json_lines("info", "swallowed", job_id=job.id)
            job.checkpoint({"after": True})
    if job.payload["how"] == "reported":
        job.progress(100)
    if job.payload["how"] == "checkpoint":
        try:
            job.checkpoint({"too": "late"})
        except RuntimeError:
            jobq.json_lines("info", "late_checkpoint", job_id=job.id)
    while not opened(job):
        job.wait(0.02)
    return {"swallowed": True}


def gate(job, suffix=""):
    """Waits for the job's gate; a stop does not end the wait."""
    while not os.path.exists(os.path.join(DIRECTORY, job.payload["gate"] + suffix)):
        time.sleep(0.02)


def note(job):
    gate(job)
    job.log("a note")


def refused(job):
    raise jobq.Skip("no need", {"no": {1}}) if job.payload["end"] == "skip" else jobq.Snooze("no interval")


def broken(job):
    with psycopg.connect(DSN, prepare_threshold=None) as connection:
        for call in (lambda: connection.execute("SELECT 1 / 0"), lambda: job.complete(connection)):
            with contextlib.suppress(psycopg.Error):
                call()
        connection.rollback()
    gate(job)
    return {"after": True}


def together(jobs):
    gate(jobs[0])
    with psycopg.connect(DSN, prepare_threshold=None) as connection:
        for job in jobs:
            connection.execute(*effect_insert(job))
            job.complete(connection)
    return [None] * len(jobs)


def report(job):
    gate(job)
    job.progress(50, {"step": 1})
    job.log("reported")
    with open(os.path.join(DIRECTORY, job.payload["gate"] + ".reported"), "w"):
        pass
    gate(job, ".end")


def chat(job):
    while job.stop_reason is None:
        job.progress(30)
        time.sleep(0.02)
    job.progress(40)
    job.check()


def rude(job):
    while not job.stop_reason:
        time.sleep(0.02)
    raise RuntimeError("stopped")


def deaf(job):
    while True:
        time.sleep(1)


async def async_gate(job, suffix=""):
    while not os.path.exists(os.path.join(DIRECTORY, job.payload["gate"] + suffix)):
        await asyncio.sleep(0.02)


async def async_note(job):
    await async_gate(job)
    note(job)


async def async_broken(job):
    async with await psycopg.AsyncConnection.connect(DSN, prepare_threshold=None) as connection:
        for call in (lambda: connection.execute("SELECT 1 / 0"), lambda: job.complete(connection)):
            with contextlib.suppress(psycopg.Error):
                await call()
        await connection.rollback()
    await async_gate(job)
    return {"after": True}


async def async_together(jobs):
    await async_gate(jobs[0])
    async with await psycopg.AsyncConnection.connect(DSN, prepare_threshold=None) as connection:
        for job in jobs:
            await connection.execute(*effect_insert(job))
            await job.complete(connection)
    return [None] * len(jobs)


async def async_report(job):
    await async_gate(job)
    job.progress(50, {"step": 1})
    job.log("reported")
    with open(os.path.join(DIRECTORY, job.payload["gate"] + ".reported"), "w"):
        pass
    await async_gate(job, ".end")


async def async_chat(job):
    try:
        while True:
            job.progress(30)
            await asyncio.sleep(0.02)
    finally:
        job.progress(40)


async def async_rude(job):
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise RuntimeError("stopped") from None


async def async_deaf(job):
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(1)


async def async_slow(job):
    try:
        while not opened(job):
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        jobq.json_lines("info", "handler_stopped", job_id=job.id, reason=job.stop_reason)
        raise
    return {"gate": job.payload["gate"]}


async def async_effect(job):
    async with await psycopg.AsyncConnection.connect(DSN, prepare_threshold=None) as connection:
        await connection.execute(*effect_insert(job))
        await job.complete(connection, {"effect": True})


async def async_checkpoint(job):
    if job.progress_data is None:
        await job.checkpoint({"step": 1}, 50)
        raise jobq.Retry("resume", retry_after=0)
    return {"resumed": job.progress_data}


async def async_progress(job):
    job.progress(30)
    while not opened(job):
        await asyncio.sleep(0.02)


async def async_mixed(jobs):
    while "gate" in jobs[0].payload and not opened(jobs[0]):
        await asyncio.sleep(0.02)
    return mixed(jobs)


async def async_big(job):
    if job.progress_data is None:
        await job.checkpoint({"data": "y" * 200000})
        raise jobq.Retry("resume", retry_after=0)
    return big(job)


async def async_swallow(job):
    async with await psycopg.AsyncConnection.connect(DSN, prepare_threshold=None) as connection:
        try:
            async with connection.transaction():
                await connection.execute(*effect_insert(job))
                if job.payload["how"] == "refused":
                    await job.complete(connection, {"too large": "x" * 2000000})
                await job.complete(connection, {"own": True})
                if job.payload["how"] == "late":
                    await async_gate(job)
                if job.payload["how"] == "rolled back":
                    raise psycopg.Rollback()
        except psycopg.Error:
            jobq.json_lines("info", "swallowed", job_id=job.id)
            await job.checkpoint({"after": True})
    if job.payload["how"] == "reported":
        job.progress(100)
    if job.payload["how"] == "checkpoint":
        try:
            await job.checkpoint({"too": "late"})
        except RuntimeError:
            jobq.json_lines("info", "late_checkpoint", job_id=job.id)
    while not opened(job):
        await asyncio.sleep(0.02)
    return {"swallowed": True}


def as_coroutine(call):
    async def coroutine(argument):
        return call(argument)
    return coroutine


HANDLERS = {"echo": echo, "slow": slow, "fail": fail, "flaky": flaky, "raise": raise_, "effect": effect,
            "checkpoint": checkpoint, "batch": batch, "poison": poison, "skip": skip, "snooze": snooze,
            "progress": progress, "log": log, "mixed": mixed, "other": mixed, "malformed": malformed,
            "badskip": badskip, "badsnooze": badsnooze, "badcode": badcode, "longcode": longcode, "big": big, "swallow": swallow,
            "note": note, "refused": refused, "broken": broken, "report": report, "chat": chat, "deaf": deaf,
            "rude": rude, "together": together}
BATCHES = {"batch": 10, "mixed": 5, "other": 5, "together": 5}
if os.environ.get("JOBQ_ASYNC"):
    HANDLERS = {name: as_coroutine(call) for name, call in HANDLERS.items()}
    HANDLERS.update(slow=async_slow, effect=async_effect, checkpoint=async_checkpoint, progress=async_progress,
                    mixed=async_mixed, other=async_mixed, big=async_big, swallow=async_swallow,
                    note=async_note, broken=async_broken, report=async_report, chat=async_chat, deaf=async_deaf,
                    rude=async_rude, together=async_together)


def main():
    if sys.argv[1:2] == ["enqueue"]:
        job_type, payload, options = (sys.argv[2:] + ["{}"])[:3]
        payload = sys.stdin.read() if payload == "-" else payload
        with psycopg.connect(DSN) as connection:
            print(jobq.enqueue(connection, job_type, json.loads(payload), **json.loads(options)))
        return
    if sys.argv[1:2] == ["enqueue_many"]:
        job_type, payloads, options = (sys.argv[2:] + ["{}"])[:3]
        with psycopg.connect(DSN) as connection:
            ids = jobq.enqueue_many(connection, job_type, json.loads(payloads), **json.loads(options))
        print(*ids, sep="\n")
        return
    worker = jobq.Worker(
        DSN, listen_dsn=os.environ.get("JOBQ_LISTEN_DSN") or None, pooler=os.environ.get("JOBQ_POOLER") == "1",
        concurrency=int(os.environ.get("JOBQ_CONCURRENCY") or 1), lease=float(os.environ.get("JOBQ_LEASE") or 120),
        poll=float(os.environ.get("JOBQ_POLL") or 1), grace=float(os.environ.get("JOBQ_GRACE") or 30),
        name=os.environ.get("JOBQ_WORKER") or None)
    for job_type in os.environ["JOBQ_TYPES"].split(","):
        limit = os.environ.get("JOBQ_SLOW") if job_type == "slow" else None
        worker.handler(job_type, batch=BATCHES.get(job_type), concurrency=limit and int(limit))(HANDLERS[job_type])

    @worker.around
    @contextlib.contextmanager
    def span(job):
        hook = job.payload.get("hook") if isinstance(job.payload, dict) else None
        if hook == "raise":
            raise RuntimeError("no span")
        jobq.json_lines("debug", "span_start", job_id=job.id, traceparent=job.traceparent)
        yield
        if hook == "raise at the end":
            raise RuntimeError("no end of the span")
        jobq.json_lines("debug", "span_end", job_id=job.id, outcome=job.outcome)

    if "JOBQ_UNTIL_EMPTY" in os.environ:
        for _ in range(int(os.environ["JOBQ_UNTIL_EMPTY"])):
            worker.run_until_empty()
    else:
        worker.run()


main()
