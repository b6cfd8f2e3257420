"""Feeds a subject and runs its jobs: the programs of README.md, and jobq, which needs none.

A Place is where one reading happens: a fresh database with a subject in it.  feed() runs load (or the subject's own
feeder) and returns its line of JSON; begin_work(), go() and the three ways to end make jobq look like a program that works.
"""
import json
import os
import pathlib
import signal
import subprocess
import time
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence

from .cluster import Session, psql, wait_until
from .subjects import BIN, Subject

Result = Dict[str, Any]
PATIENCE = 3600   # seconds; a drain that takes longer is broken


@dataclass
class Place:
    """One reading's database: how to connect, a session in it, and the processes of the server, for its CPU."""
    subject: Subject
    env: Dict[str, str]
    session: Session
    roots: List[int]
    work: pathlib.Path
    programs: List[subprocess.Popen] = field(default_factory=list)


def start(place: Place, argv: Sequence[str]) -> subprocess.Popen:
    """A program of the subject."""
    with open(place.work / "errors", "a") as errors:
        program = subprocess.Popen(argv, env={**place.env, **place.subject.env}, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=errors, text=True)
    place.programs.append(program)
    return program


def finish(place: Place, program: subprocess.Popen, seconds: float = PATIENCE) -> Result:
    """Waits for its end; its last line is its result."""
    out, _ = program.communicate(timeout=seconds)
    if program.returncode != 0 or not out.strip():
        errors = (place.work / "errors").read_text()[-500:]
        raise RuntimeError("%s: exit %d: %s" % (program.args[0], program.returncode, errors))   # type: ignore[index]
    return json.loads(out.strip().splitlines()[-1])


def end_programs(place: Place) -> None:
    """Ends all programs of a reading, also after a failure."""
    for program in place.programs:
        if program.poll() is None:
            program.kill()
            program.wait()


# The partitions of a new database, and the tasks due a second after the dispatcher's start.
FIRST_PASS = """SELECT EXISTS (SELECT FROM jobq.disk_log) AND NOT EXISTS (SELECT FROM jobq_internal._missing_partitions())"""


def set_up(place: Place) -> None:
    """Makes the subject's tables."""
    if place.subject.setup:
        place.session.query(place.subject.setup)
    if place.subject.setup_program:
        run = subprocess.run(place.subject.setup_program, env={**place.env, **place.subject.env}, capture_output=True, text=True)
        if run.returncode != 0:
            raise RuntimeError("%s: %s" % (place.subject.setup_program[:2], run.stderr[-500:]))
    if place.session.query("SELECT 1 FROM pg_extension WHERE extname = 'jobq'"):
        wait_until(lambda: place.session.value(FIRST_PASS) == "t", "maintenance of the new database", 60)
        at_rest(place)


def at_rest(place: Place) -> None:
    """Waits until no maintenance of jobq runs: its CPU belongs to no reading that is shorter than its minute."""
    wait_until(lambda: not place.session.query("""SELECT 1 FROM pg_stat_activity
        WHERE backend_type = 'jobq maintenance' AND datname = current_database()"""), "the end of maintenance", 60, 0.02)


# --- feeding --------------------------------------------------------------------------------------

def feeding(place: Place, kind: str, options: Dict[str, Any], sql: Optional[str] = None) -> subprocess.Popen:
    """Starts load; options are load's, True for a flag.  sql: a statement other than the subject's own."""
    subject = place.subject
    if subject.feeder and sql is None:
        argv = [*subject.feeder, "--kind", kind]
    else:
        if sql is None:
            sql = subject.bulk if "bulk" in options else subject.enqueue
        argv = [str(BIN / "load"), "--sql", sql.replace("{type}", kind)]
    for option, value in options.items():
        argv += ["--" + option] if value is True else ["--" + option, str(value)]
    return start(place, argv)


def feed(place: Place, kind: str, sql: Optional[str] = None, **options: Any) -> Result:
    """Runs load to its end."""
    return finish(place, feeding(place, kind, options, sql))


def fill(place: Place, kind: str, jobs: int, priorities: int = 1, ready: bool = True) -> None:
    """Fills a queue without workers, fast, with the highest priority last; then vacuums the tables, or not."""
    subject = place.subject
    share = jobs // priorities
    for priority in range(priorities):
        first = {"first": priority * share, "jobs": share, "bulk": 1000}
        if priorities == 1:
            feed(place, kind, **first)
        elif subject.feeder:
            feed(place, kind, priority=priority, **first)
        else:
            feed(place, kind, subject.bulk_priority.replace("{priority}", str(priority)), **first)
    if ready:
        make_ready(place)


def make_ready(place: Place) -> None:
    """Vacuums and analyses the tables as autovacuum would, but at the same moment for every subject."""
    place.session.query("""SELECT 'VACUUM (ANALYZE) ' || oid::regclass FROM pg_class WHERE relkind = 'r'
        AND relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace) \\gexec""")


def read_times(path: pathlib.Path) -> List[List[float]]:
    """Lines of load --times: n, due, before, commit, after."""
    with open(path) as lines:
        return [[float(word) for word in line.split()] for line in lines]


def read_results(place: Place) -> Dict[int, float]:
    """n -> the time at which its handler ran."""
    rows = psql(place.env, "COPY bench.result TO STDOUT (DELIMITER ' ')")
    return {int(n): float(ran) for n, ran in (row.split() for row in rows)}


def wait_for_rows(place: Place, rows: int, seconds: float = 60) -> None:
    """Waits until so many `row` jobs have committed."""
    wait_until(lambda: int(place.session.value("SELECT count(*) FROM bench.result")) >= rows, "%d rows" % rows, seconds)


# --- working --------------------------------------------------------------------------------------

@dataclass
class Work:
    """A queue whose jobs run now or later; `program` is None for jobq."""
    place: Place
    kind: str                  # jobq: a LIKE pattern of job types
    jobs: int
    program: Optional[subprocess.Popen] = None
    watched: str = ""          # jobq: the id of the job that is expected to end last
    started: float = 0.0


def begin_work(place: Place, kind: str, jobs: int = 0, more: Sequence[str] = ()) -> Work:
    """Prepares everything up to go(); jobs = 0: until end_work()."""
    work = Work(place, kind, jobs)
    if not place.subject.worker:
        work.watched = last_of(place.session, jobs) if jobs else ""
        return work
    argv = [*place.subject.worker, "--kind", kind, *more] + (["--jobs", str(jobs)] if jobs else [])
    work.program = start(place, argv)
    if work.program.stdout.readline().strip() != "ready":
        finish(place, work.program)
        raise RuntimeError("%s did not say ready" % argv[:3])
    return work


def connect_workers(place: Place) -> None:
    """Starts the workers in the server by jobs that take a while, as a client connects before go."""
    if place.subject.family != "jobq":
        return
    for job in place.session.query("SELECT jobq.enqueue('nap') FROM generate_series(1, 8)"):
        place.session.query("SELECT FROM jobq.wait_for('%s')" % job)


def go(work: Work) -> None:
    work.started = time.time()
    if work.program is None:
        work.place.session.query("SELECT jobq.resume_job_type(name) FROM jobq.job_types WHERE name LIKE '%s'" % work.kind)
    else:
        work.program.stdin.write("go\n")
        work.program.stdin.flush()


def wait_for_work(work: Work) -> Result:
    """Waits until all jobs are done: {"started", "finished", "cpu"}."""
    if work.program is not None:
        return finish(work.place, work.program)
    wait_for_jobq(work)
    session = work.place.session
    finished = session.value("SELECT extract(epoch FROM completed_at) FROM jobq.history ORDER BY completed_at"
                             " OFFSET %d LIMIT 1" % (work.jobs - 1))
    return {"jobs": work.jobs, "started": work.started, "finished": float(finished), "cpu": 0.0}


def last_of(session: Session, jobs: int) -> str:
    """The job that is handed out as number `jobs`: jobs of one priority go by position."""
    return session.value("SELECT id FROM jobq.queue ORDER BY priority DESC, position, id OFFSET %d LIMIT 1" % (jobs - 1))


def wait_for_jobq(work: Work) -> None:
    """Polls one index entry of an id, at a cost independent of dead rows; counts the jobs once that row is gone."""
    session = work.place.session
    wait_until(lambda: not session.query("SELECT 1 FROM jobq.queue WHERE id = '%s'" % work.watched),
               "jobq drains", PATIENCE)
    wait_until(lambda: int(session.value("SELECT count(*) FROM jobq.history")) >= work.jobs, "jobq drains", 120)


def end_work(work: Work) -> Result:
    """Ends work that has no number of jobs."""
    if work.program is None:
        work.place.session.query("SELECT jobq.pause_job_type('%s')" % work.kind)
        return {"cpu": 0.0}
    work.program.send_signal(signal.SIGTERM)
    return finish(work.place, work.program, 60)
