"""The subjects: how each queue is set up, fed and run.  A table; driver/clients.py reads it.

A subject is fed either by SQL (bench/bin/load) or by a program of its own that takes load's options.  It is run either by
a program (README.md, `work`) or, when `worker` is empty, by jobq in the server: then its job type is paused until a
workload starts it.  In SQL, {type} is the kind of job, {priority} a number, {delay} a number of seconds.
"""
import fnmatch
import os
import shutil
import subprocess
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Sequence, Tuple

from .cluster import BUILD, TOP

BIN = BUILD / "bin"
PEERS = TOP / "bench" / "peers"
NODE = str(BIN / "node")


@dataclass(frozen=True)
class Subject:
    name: str                                   # family/config
    setup: str = ""                             # SQL for a fresh database
    setup_program: Tuple[str, ...] = ()         # instead of SQL, or after it
    enqueue: str = ""                           # SQL with $1, the payload
    enqueue_later: str = ""                     # $1 = an array of payloads; due in a day
    bulk: str = ""                              # SQL with $1, an array of payloads
    bulk_priority: str = ""
    feeder: Tuple[str, ...] = ()                # instead of load: a program that takes load's options and --kind
    worker: Tuple[str, ...] = ()                # program and verb that works the queue
    settings: Dict[str, str] = field(default_factory=dict)   # ALTER DATABASE ... SET
    env: Dict[str, str] = field(default_factory=dict)        # of feeder and worker
    schedule: str = ""                          # SQL that runs a `row` job each minute; a worker has --cron
    services: Tuple[str, ...] = ()              # driver/services.py
    tables: Tuple[str, ...] = ()                # LIKE patterns, for sizes and dead rows
    needs: Tuple[str, ...] = ()                 # files, or programs of the PATH, without which it is missing
    slow: int = 1                               # it gets this many times fewer jobs to drain
    at_most: int = 10 ** 9                      # and no level more than this

    @property
    def family(self) -> str:
        return self.name.split("/")[0]


# --- jobq -----------------------------------------------------------------------------------------

JOBQ_SETUP = """
CREATE EXTENSION jobq;
CREATE FUNCTION bench.noop(payload jsonb) RETURNS void LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION bench.row(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO bench.result VALUES ((payload->>'n')::bigint, extract(epoch FROM clock_timestamp()));
END $$;
CREATE FUNCTION bench.nap() RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.05); END';
SELECT jobq.create_job_type('nap', handler => 'bench.nap()', keep_completed => '0', options => '{"batch": false}');
SELECT jobq.create_job_type('noop', handler => 'bench.noop(jsonb)');
SELECT jobq.create_job_type('row', handler => 'bench.row(jsonb)');
SELECT jobq.pause_job_type(t) FROM unnest('{noop,row}'::text[]) t;
"""


def jobq(config: str, **settings: str) -> Subject:
    return Subject(
        "jobq/" + config, setup=JOBQ_SETUP,
        enqueue="SELECT jobq.enqueue('{type}', $1::jsonb)",
        enqueue_later="SELECT count(*) FROM jobq.enqueue_many('{type}', $1::jsonb[], delay => '1 day')",
        bulk="SELECT count(*) FROM jobq.enqueue_many('{type}', $1::jsonb[])",
        bulk_priority="SELECT count(*) FROM jobq.enqueue_many('{type}', $1::jsonb[], priority => {priority})",
        settings={"jobq." + k: v for k, v in settings.items()}, tables=("jobq.queue",))


# --- pull: jobq with clients that claim (peers/pull.c, pull.mjs and workers.py) -------------------

PULL_SETUP = """
CREATE EXTENSION jobq;
SELECT jobq.create_job_type('noop'), jobq.create_job_type('row');
"""
# A server of its own has no template.
CROWD_SETUP = "CREATE SCHEMA bench; CREATE TABLE bench.result (n bigint, ran double precision);" + PULL_SETUP


def pull(config: str, *options: str, **more: Any) -> Subject:
    program = str(BIN / "pull")
    given: Dict[str, Any] = {"setup": PULL_SETUP, "worker": (program, "work", *options), "needs": (program,),
                             "settings": {"jobq.max_concurrent": "1000000"}, **more}
    return replace(jobq(config), name="pull/" + config, **given)


def pull_node(config: str, peer_config: str) -> Subject:
    program = str(PEERS / "pull.mjs")
    return pull(config, worker=(NODE, "--preserve-symlinks", "--preserve-symlinks-main", program, "work", "--config", peer_config),
                needs=(NODE, program, str(PEERS / "node_modules" / "jobq")))


# Debian's Python has the package of psycopg.
PYTHON = ("/usr/bin/python3", str(PEERS / "workers.py"))
PYTHON_NEEDS = (*PYTHON, "/usr/lib/python3/dist-packages/psycopg")


# --- bare: the cost of storing the same row without a queue ---------------------------------------

# The columns of jobq.queue with their types, NOT NULLs and defaults, without its CHECK.  The id
# comes from a sequence: ordered in time like a UUIDv7 and cheaper than making one in SQL, so the
# comparison is hard on jobq.
BARE_SETUP = """
CREATE EXTENSION jobq;
CREATE SCHEMA bare;
CREATE SEQUENCE bare.ids CACHE 32;
CREATE TABLE bare.queue (LIKE jobq.queue INCLUDING DEFAULTS) WITH (fillfactor = 90);
CREATE UNIQUE INDEX queue_id ON bare.queue (id);
"""
BARE_LANE = "CREATE INDEX queue_lane ON bare.queue (type_id, priority DESC, sublane, position);"
BARE_INSERT = """INSERT INTO bare.queue (id, position, scheduled_for, created_at, type_id, home_id, max_attempts, payload)
 SELECT lpad(to_hex(nextval('bare.ids')), 32, '0')::uuid, t, t, t, 1, 1, 3, p::jsonb FROM (SELECT clock_timestamp()) c(t), """
BARE_ONE = BARE_INSERT + "(SELECT $1::text) s(p)"
BARE_MANY = BARE_INSERT + "unnest($1::text[]) s(p)"


def bare(config: str, setup: str = "", enqueue: str = BARE_ONE, bulk: str = BARE_MANY) -> Subject:
    return Subject("bare/" + config, setup=BARE_SETUP + setup, enqueue=enqueue, bulk=bulk, tables=("bare.queue",))


# --- skip-locked: a worker written by hand (peers/skip_locked.c) ----------------------------------

SL_ROWS = "INSERT INTO sl.job (payload) SELECT p::jsonb FROM unnest($1::text[]) p"
SL_NOTIFY = "WITH job AS (INSERT INTO sl.job (payload) VALUES ($1::jsonb)) SELECT pg_notify('sl_job', '')"


def skip_locked(config: str, *options: str, **more: str) -> Subject:
    program = str(BIN / "skip_locked")
    return Subject(
        "skip-locked/" + config, setup_program=(program, "setup"), worker=(program, "work", *options),
        enqueue=more.get("enqueue", "INSERT INTO sl.job (payload) VALUES ($1::jsonb)"), bulk=SL_ROWS,
        bulk_priority="INSERT INTO sl.job (payload, priority) SELECT p::jsonb, {priority} FROM unnest($1::text[]) p",
        enqueue_later="INSERT INTO sl.job (payload, scheduled_for) SELECT p::jsonb, now() + interval '1 day' FROM unnest($1::text[]) p",
        tables=("sl.job",), needs=(program,), slow=1 if config.startswith("batch") else 5)


# A claim commits before its jobs run, as one of jobq does; a lease that is over
# is another worker's to retry.
LEASES = """
CREATE SCHEMA leases;
CREATE TABLE leases.job (
 id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, priority smallint NOT NULL DEFAULT 0,
 scheduled_for timestamptz NOT NULL DEFAULT now(), payload jsonb NOT NULL, attempts integer NOT NULL DEFAULT 0,
 leased_until timestamptz, token uuid)
 WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX job_claim ON leases.job (priority DESC, scheduled_for, id) WHERE leased_until IS NULL;
CREATE TABLE leases.history (
 id bigint PRIMARY KEY, priority smallint NOT NULL, scheduled_for timestamptz NOT NULL, payload jsonb NOT NULL,
 attempts integer NOT NULL, finished_at timestamptz NOT NULL);
"""


def lease_table(config: str, *options: str) -> Subject:
    program = str(BIN / "pull")
    return Subject("skip-locked/" + config, setup=LEASES, worker=(program, "work", "--table", *options),
                   enqueue="INSERT INTO leases.job (payload) VALUES ($1::jsonb)",
                   bulk="INSERT INTO leases.job (payload) SELECT p::jsonb FROM unnest($1::text[]) p",
                   tables=("leases.job",), needs=(program,))


# --- peers on Node.js, and PgQ with a Node.js client (peers/*.mjs) --------------------------------

def node_peer(name: str, program: str, config: str, needs: Tuple[str, ...], **more: Any) -> Subject:
    """A subject with a program for `setup` and `work`."""
    argv = (NODE, str(PEERS / program))
    return Subject(name, setup_program=(*argv, "setup", "--config", config), worker=(*argv, "work", "--config", config),
                   needs=(NODE, *argv[1:], *needs), **more)


def graphile(config: str, **more: Any) -> Subject:
    spec = ("SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(SELECT json_populate_record(NULL::graphile_worker.job_spec,"
            " json_build_object('identifier', '{type}', 'payload', p::json, 'priority', %s)) FROM unnest($1::text[]) p))")
    return node_peer(
        "graphile-worker/" + config, "graphile.mjs", config, (str(PEERS / "node_modules" / "graphile-worker"),),
        enqueue="SELECT graphile_worker.add_job('{type}', $1::json)", bulk=spec % "0", bulk_priority=spec % "100 - {priority}",
        tables=("graphile_worker._private_jobs",), **more)


def pg_boss(config: str, **more: Any) -> Subject:
    one = "INSERT INTO pgboss.job (name, data) VALUES ('{type}', $1::jsonb)"
    notify = "SELECT pg_notify('pgboss_' || left(encode(sha224('pgboss'), 'hex'), 24), '{type}')"
    return node_peer(
        "pg-boss/" + config, "pg-boss.mjs", config, (str(PEERS / "node_modules" / "pg-boss"),),
        enqueue=one if config == "default" else "WITH job AS (%s) %s" % (one, notify),
        bulk="INSERT INTO pgboss.job (name, data) SELECT '{type}', p::jsonb FROM unnest($1::text[]) p",
        bulk_priority="INSERT INTO pgboss.job (name, data, priority) SELECT '{type}', p::jsonb, {priority} FROM unnest($1::text[]) p",
        tables=("pgboss.job%",), **more)


def bullmq(config: str, peer_config: str, fsync: str, slow: int = 5) -> Subject:
    """fsync: the durability of its Redis."""
    return node_peer("bullmq/" + config, "bullmq.mjs", peer_config, ("redis-server", str(PEERS / "node_modules" / "bullmq")),
                     feeder=(NODE, str(PEERS / "bullmq.mjs"), "enqueue", "--config", peer_config),
                     services=("redis-" + fsync,), slow=slow)


def pgq(config: str, **more: Any) -> Subject:
    return node_peer(
        "pgq/" + config, "pgq.mjs", config, ("pgqd",), enqueue="SELECT pgq.insert_event('q', '{type}', $1)",
        bulk="SELECT count(pgq.insert_event('q', '{type}', p)) FROM unnest($1::text[]) p", tables=("pgq.event_%",), **more)


# --- pg_cron, in a server of its own --------------------------------------------------------------

PG_CRON_SETUP = """
CREATE SCHEMA bench;
CREATE TABLE bench.result (n bigint, ran double precision);
CREATE EXTENSION pg_cron;
"""
PG_CRON_ROW = "SELECT cron.schedule('row', '* * * * *', 'INSERT INTO bench.result VALUES (0, extract(epoch FROM clock_timestamp()))')"


def pg_cron(config: str) -> Subject:
    """config: where its jobs run, in a `connection` each or a background `worker` each."""
    return Subject("pg_cron/" + config, setup=PG_CRON_SETUP, schedule=PG_CRON_ROW, services=("pg_cron-" + config,), needs=(extension("pg_cron"),))


def extension(name: str) -> str:
    """The library of an extension of the server."""
    told = subprocess.run([os.environ.get("PG_CONFIG") or "pg_config", "--pkglibdir"], capture_output=True, text=True)
    return "%s/%s.so" % (told.stdout.strip(), name)


SUBJECTS: List[Subject] = [
    jobq("default"),
    jobq("weighed", max_weight="1000"),   # never reached: the cost of weights
    jobq("w2", max_sql_workers="2"),
    jobq("w1", max_sql_workers="1"),
    pull("wait"),
    pull("joined", "--join"),
    pull("hundred", "--batch", "100"),
    pull("listen", "--listen"),
    pull("batch", "--concurrency", "50", "--batch", "20", "--join"),
    pull("crowd", setup=CROWD_SETUP, services=("crowd-1000",), tables=()),
    pull("python", worker=(*PYTHON, "work"), needs=PYTHON_NEEDS),
    pull_node("node", "default"),
    pull_node("node-batch", "batch"),
    bare("insert"),
    bare("insert-lane", BARE_LANE),
    bare("insert-notify", enqueue="WITH job AS (%s RETURNING id) SELECT pg_notify('bench', '') FROM job" % BARE_ONE, bulk=""),
    Subject("bare/spawn-loop", needs=(str(BIN / "spawn_loop"),)),
    skip_locked("one", "--config", "one", "--concurrency", "16"),
    skip_locked("history", "--config", "one", "--history"),
    lease_table("leases"),
    lease_table("leases-joined", "--join"),
    lease_table("leases-hundred", "--batch", "100"),
    replace(lease_table("leases-python"), worker=(*PYTHON, "work", "--loop"), needs=PYTHON_NEEDS),
    skip_locked("batch", "--config", "batch", "--concurrency", "2"),
    skip_locked("batch-history", "--config", "batch-history", "--concurrency", "2"),
    skip_locked("listen", "--config", "one", "--concurrency", "16", "--listen", enqueue=SL_NOTIFY),
    graphile("default", slow=20),
    graphile("best", slow=5),
    pg_boss("default", at_most=3),   # a job every two seconds
    pg_boss("best", slow=5),
    bullmq("default", "default", "everysec", slow=20),   # one job at a time
    bullmq("everysec", "best", "everysec"),
    bullmq("always", "always", "always"),
    pgq("default", slow=5),
    pgq("best", slow=5),
    pg_cron("connection"),
    pg_cron("worker"),
]


def matches(subject: Subject, patterns: Sequence[str]) -> bool:
    """True if the subject is of one of these families or names."""
    return any(subject.family == p or fnmatch.fnmatch(subject.name, p) for p in patterns)


def chosen(patterns: Sequence[str]) -> List[Subject]:
    """The subjects of these families or names, in the table's order; all without patterns."""
    return [s for s in SUBJECTS if not patterns or matches(s, patterns)]


def missing(subject: Subject) -> List[str]:
    """The missing requirements of a subject."""
    needs = (str(BIN / "load"), *subject.needs)
    return [n for n in needs if not (os.path.exists(n) if "/" in n else shutil.which(n))]
