#!/usr/bin/python3
"""A worker of the demo: the database is in libpq's environment."""
import jobq

worker = jobq.Worker(name="worker.py")


@worker.handler("count_letters")
def count_letters(job):
    return {"letters": sum(letter.isalpha() for letter in job.payload["text"])}


worker.run()
