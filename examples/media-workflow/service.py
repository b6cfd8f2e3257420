#!/usr/bin/python3
"""A service: service.py NAME... works the tasks of these types.  The database is in libpq's environment.

While the file hold.NAME exists, tasks of the service wait.
"""
import os, subprocess, sys, tempfile

import jobq, psycopg

import media_jobs as media


class NoSuchSource(Exception):
    pass


def run(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout


def render(task, directory):
    """A picture of the source's first page."""
    if not os.path.exists(task.payload["source"]):
        raise NoSuchSource(task.payload["source"])
    run("pdftoppm", "-r", "150", "-gray", "-png", "-singlefile", task.payload["source"], f"{directory}/page")
    return "image", f"{directory}/page.png"


def caption(task, directory):
    """The words in the picture."""
    run("tesseract", str(media.STORE / task.payload["image"]), f"{directory}/words")
    return "text", f"{directory}/words.txt"


def publish(task, directory):
    """The list of what the job has made."""
    with open(f"{directory}/index.txt", "w") as file:
        file.writelines(f"{key}\n" for key in task.payload["keys"])
    return "index", file.name


def register(worker, name, work):
    @worker.handler(name)
    def handle(job):
        while os.path.exists(f"hold.{name}"):
            job.wait(0.02)
        with tempfile.TemporaryDirectory() as directory, psycopg.connect() as db:
            task = media.task_of(db, job.id, job.lease_token)
            db.commit()     # no transaction during the work
            kind, path = work(task, directory)
            key = media.record_task_artifact(db, task, path)    # the row, the event, the completion: one transaction
            media.append_task_event(db, task, "stored", key)
            job.complete(db, {kind: key})


def archive(job):
    with psycopg.connect() as db:
        job.complete(db, media.archive_rows(db, job.payload["what"], job.payload["from"], job.payload["to"]))


lease = float(os.environ.get("MEDIA_LEASE", 120))
worker = jobq.Worker(listen_dsn="application_name=listen", concurrency=4, lease=lease)
for name in sys.argv[1:]:
    if name == "archive":
        worker.handler(name)(archive)
    else:
        register(worker, name, {"render": render, "caption": caption, "publish": publish}[name])
worker.run()
