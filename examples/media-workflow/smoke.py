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
