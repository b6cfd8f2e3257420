#!/usr/bin/python3
"""A pod: embeds ten texts with a call of the API.  Database and API are in the environment."""
import json, os
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import jobq, psycopg
from psycopg import sql

STORE = sql.SQL("UPDATE {} SET embedding = %s::real[] WHERE id = %s")
worker = jobq.Worker(name=os.environ["POD"], lease=float(os.environ.get("LEASE", 60)))


def vectors_of(model, texts):
    body = json.dumps({"model": model, "input": texts}).encode()
    try:
        with urlopen(Request(os.environ["EMBEDDING_API"], body, {"Content-Type": "application/json"}), timeout=30) as answer:
            return json.load(answer)["embeddings"]
    except HTTPError as error:
        try:
            reason = json.load(error)["error"]
        except (ValueError, LookupError, TypeError):     # of a proxy
            reason = error.reason
        message = f"{error.code} {reason}"
        raise (jobq.Permanent if error.code == 400 else jobq.Retry)(message, code=f"http_{error.code}") from error


def embed_together(jobs):
    """Embeds jobs with one call; their vectors and their completions are one transaction."""
    vectors = vectors_of(jobs[0].payload["model"], [job.payload["text"] for job in jobs])
    with psycopg.connect() as db:
        for job, vector in zip(jobs, vectors, strict=True):
            db.execute(STORE.format(sql.Identifier(job.payload["table"])), [vector, job.payload["id"]])
            job.complete(db)


def embed_alone(job):
    try:
        embed_together([job])
    except Exception as error:
        return error


@worker.handler("embed", batch=10)
def embed(jobs):
    models = {job.payload["model"] for job in jobs}
    try:
        if len(models) == 1:
            embed_together(jobs)
            return [None] * len(jobs)
    except (jobq.Permanent, jobq.LeaseLost):    # of one text: the others have nothing to do with it
        pass
    return [embed_alone(job) for job in jobs]


worker.run()
