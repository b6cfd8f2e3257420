#!/usr/bin/python3
"""The variant with workers: claims the jobs of all types; the model is loaded once and stays."""
import contextlib, json, os, sys, time

import jobq, psycopg
from psycopg.types.json import Jsonb

import ingest

# Jobs at once, memory of each program that a job starts.
TYPES = {"extract.pdf": (2, 512), "extract.image": (2, 512), "ingest.video": (1, 1024), "sync.source_doc": (1, 256)}


def concurrency(name):
    return int(os.environ.get("VOID_CONCURRENCY_" + name.upper().replace(".", "_"), TYPES[name][0]))


# A heartbeat, each third of the lease, hears of a cancel.
worker = jobq.Worker(concurrency=sum(map(concurrency, TYPES)), lease=30, log=lambda *_, **__: None)


def register(name, work):
    @worker.handler(name, concurrency=concurrency(name))
    def handle(job):
        ingest.limits.set(("setpriv", "--pdeathsig", "KILL", "prlimit", f"--as={TYPES[name][1] * 1_000_000}"))
        ingest.check.set(job.check)
        try:
            result = work(job.payload["url"])
        except ingest.Skipped as reason:
            raise jobq.Skip(str(reason), {"skipped": str(reason)})
        with psycopg.connect() as db:       # the result and the completion are one transaction
            db.execute("SELECT store_result(%s, %s, %s, %s)", [job.id, name, Jsonb(job.payload), Jsonb(result)])
            job.complete(db, {key: value for key, value in result.items() if key != "body_text"})


@worker.around
@contextlib.contextmanager
def log(job):
    began = time.monotonic()
    yield
    print(json.dumps({"job_id": str(job.id), "job_name": job.type, "entity_type": job.payload["entity_type"],
                      "entity_id": job.payload["entity_id"], "outcome": "retry" if job.outcome == "failed" else job.outcome,
                      "duration_ms": round((time.monotonic() - began) * 1000)}), file=sys.stderr, flush=True)


for name, work in ingest.TYPES.items():
    register(name, work)
worker.run()
