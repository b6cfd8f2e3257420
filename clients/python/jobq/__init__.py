"""Workers and enqueueing for jobq, the job queue in PostgreSQL.

    worker = jobq.Worker("dbname=shop", concurrency=10)

    @worker.handler("thumbnail")
    def thumbnail(job):
        return {"path": make_thumbnail(job.payload["image"])}

    worker.run()
"""

from .enqueue import enqueue, enqueue_many
from .errors import LeaseLost, Permanent, Retry, Skip, Snooze, Stopped
from .job import Job
from .log import json_lines
from .worker import Worker

__all__ = [
    "Job", "LeaseLost", "Permanent", "Retry", "Skip", "Snooze", "Stopped", "Worker",
    "enqueue", "enqueue_many", "json_lines",
]
