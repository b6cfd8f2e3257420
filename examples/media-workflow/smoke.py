#!/usr/bin/python3
"""The library's smoke test: two jobs of two tasks, through its own functions.  Prints the order."""
import time

import psycopg

import media_jobs as media

SERVICES = "render", "caption"
db, ear = psycopg.connect(autocommit=True), psycopg.connect(autocommit=True)
notified = media.notifications(ear, *SERVICES)
next(notified)
jobs = [media.create_job(db, "media", {"source": f"smoke {n}"}) for n in (1, 2)]
print("notified:", next(notified))

order = []
for turn in range(4):
    # The older job's second task, runnable in a moment, goes before the younger one's first.
    while jobs[turn // 2] not in [task.job_id for task in media.select_runnable(db, *SERVICES)]:
        time.sleep(0.02)
    first = media.select_runnable(db, *SERVICES)[0]
    task = media.claim(db, *SERVICES, worker="smoke")
    assert task.id == first.id, "the claim takes the first runnable task"
    media.heartbeat(db, task, 50)
    with db.transaction():
        media.append_task_event(db, task, "note", "smoke test")
        media.mark_task_done(db, task, {"image": "none"})
    order.append(f"{jobs.index(task.job_id) + 1}.{task.key}")
print("order:", *order)

# The other functions: a task fails for good, is taken up again, is skipped; a job is cancelled.
job = media.create_job(db, "media", {"source": "smoke 3"})
task = media.claim(db, *SERVICES, worker="smoke", wait=20)
with open("smoke.log", "w") as log:
    log.write("no such codec\n")
media.record_task_artifact(db, task, "smoke.log", "log")
ends = [media.mark_task_failed(db, task, "no such codec", retryable=False)]
ends.append(db.execute("SELECT (jobq.wait_for(%s)).status::text", [job]).fetchone()[0])
media.retry_job(db, job)
task = media.claim(db, *SERVICES, worker="smoke", wait=20)
media.mark_task_skipped(db, task, "there is no picture")
ends.append(db.execute("SELECT (jobq.wait_for(%s)).status::text", [job]).fetchone()[0])
stored = media.STORE / media.list_artifacts(db, job)[0]["key"]
with open("smoke.log", "w") as log:
    log.write("too late\n")
try:
    media.record_task_artifact(db, task, "smoke.log", "log")
    raise AssertionError("an attempt that has ended writes an object")
except media.Lost:
    assert stored.read_text() == "no such codec\n", "the object of the attempt that won stays"
job = media.create_job(db, "media", {"source": "smoke 4"})
ends.append(media.cancel_job(db, job, "no longer needed"))
print("ends:", *ends, media.get_job(db, task.job_id)["tasks"], media.list_artifacts(db, task.job_id)[0]["key"].split("/")[0],
      "note" in [event["type"] for event in media.list_events(db, jobs[0])], media.find_stuck(db))
